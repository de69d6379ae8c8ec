"""The contract of every store: what `ports.Store` promises, as tests. Subclass it in three lines."""

from holdfast.testing.alike_contract import AlikeContract
from holdfast.testing.census_contract import CensusContract
from holdfast.testing.claim_contract import ClaimContract
from holdfast.testing.commit_contract import CommitContract
from holdfast.testing.follow_up_contract import FollowUpContract
from holdfast.testing.history_contract import HistoryContract
from holdfast.testing.key_contract import KeyContract
from holdfast.testing.listing_contract import ListingContract
from holdfast.testing.log_contract import LogContract
from holdfast.testing.naming_contract import NamingContract
from holdfast.testing.owner_contract import OwnerContract
from holdfast.testing.publish_contract import PublishContract
from holdfast.testing.quota_contract import QuotaContract
from holdfast.testing.trace_contract import TraceContract
from holdfast.testing.verdict_contract import VerdictContract
from holdfast.testing.worker_list_contract import WorkerListContract


class StoreContract(
    CommitContract,
    ClaimContract,
    AlikeContract,
    ListingContract,
    NamingContract,
    LogContract,
    CensusContract,
    HistoryContract,
    PublishContract,
    FollowUpContract,
    KeyContract,
    OwnerContract,
    QuotaContract,
    TraceContract,
    VerdictContract,
    WorkerListContract,
):
    """Set `open` to a function that opens an empty store in a folder, on a clock."""
