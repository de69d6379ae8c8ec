"""Every limit of the server, named with its unit."""

from holdfast.core.limits import CHECKPOINT_BYTES_MAX, PAYLOAD_BYTES_MAX, RESULT_BYTES_MAX

REQUEST_BYTES_MAX = 1024 * 1024
REQUEST_FIELDS_MAX = 200_000
"""Fields in a request: each takes a microsecond or two to decode, which blocks the event loop."""
PUBLISH_BYTES_MAX = 32 * 1024 * 1024
"""One message of PublishJobEvents: a client that could not reach a server for a while sends all it has."""
PUBLISH_FIELDS_MAX = 500_000
"""Fields in such a message, if it is larger than other requests: each takes about 100 bytes decoded."""
PUBLISH_MEMORY_BYTES = 2 * PUBLISH_BYTES_MAX
"""Memory for all messages that are larger than other requests; and for those of one key."""
PUBLISH_MEMORY_BYTES_PER_KEY = PUBLISH_BYTES_MAX
PUBLISH_SECONDS_MAX = 60.0
PUBLISH_IDLE_SECONDS_MAX = 900.0
"""How long a publish stream may be open without a message: as long as a job may be silent."""
PUBLISH_STREAMS_MAX = 2_000
PUBLISH_STREAMS_PER_KEY_MAX = 1_000
GZIP_RATIO_MAX = 1_032
"""How many times its size gzip data can unpack to."""
RESPONSE_BYTES_MAX = 8 * 1024 * 1024
CHANGED_BYTES_MAX = REQUEST_BYTES_MAX
"""Payloads, results and checkpoints in the response to a call that changes many jobs: as much as a request
may have, so that new jobs are returned whole, and so is any job that is changed alone."""
COMPLETIONS_PER_TOKEN_MAX = 10
"""Different completions of one attempt in one call: for each of them the history of its job is read."""
COMPRESS_BYTES_MIN = 1024
HEADER_BYTES_MAX = 16 * 1024
PIPELINED_MAX = 32
"""Requests that a client may send on one connection before it has the response to the first."""
CONNECTIONS_MAX = 20_000
"""By HTTP, or half of the descriptors that the process may have. By gRPC a quarter of that."""
ADDRESS_SHARE = 2
"""One address may have half of them open without a valid key."""
KEY_SHARE = 2
"""One key may have calls under way on half of the connections by HTTP."""
WAITING_SHARE = 4
"""One key may have as many waiting calls as a quarter of the connections by HTTP, which is at most half of
`WAITING_MAX`: so there are connections for its heartbeats though all its claims wait."""
DESCRIPTORS_MAX = 65_536
"""Descriptors that the server asks the system for when it starts."""
REQUEST_SECONDS_MAX = 30.0
CHORE_SECONDS_MAX = 900.0
WAIT_SECONDS_MAX = 25.0
POLL_SECONDS_MAX = 120.0

RATE_PER_SECOND_MAX = 5_000
RATE_BURST_MAX = 10_000

WAITING_MAX = 10_000
STREAMS_MAX = 500
STREAMS_PER_PRINCIPAL_MAX = 20
STREAMS_PER_JOB_MAX = 10
STALLED_SECONDS_MAX = 60.0

VALIDATIONS_MAX = 2
VALIDATIONS_WAITING_MAX = 64

PAGE_BYTES = 256 * 1024
PAGE_EVENTS_MAX = 256
PAGES_KEPT_BYTES = 16 * 1024 * 1024
PAGES_KEPT_SECONDS = 5.0

CLAIM_ITEMS_MAX = 100
QUEUES_PER_CLAIM_MAX = 1_000
KINDS_PER_CLAIM_MAX = 1_000
OFFSET_ITEMS_MAX = 100_000
LIST_READS_MAX = 50
EVENT_READS_MAX = 50
"""Pages of the store that are read for a caller who must not learn that they have nothing it may see."""
SKIP_SECONDS_MAX = 0.25
"""How long such pages are read before the caller gets an empty page with a cursor."""
QUEUE_ITEMS_MAX = 1_000_000

OWNER_CALLS_MAX = 1_024
"""Calls under way at once: by owners of attempts, other quick ones, large reads, and long ones (chores)."""
OWNER_CALLS_PER_KEY_MAX = 512
OWNER_CALLS_WAITING_MAX = 4_000
OWNER_CALLS_WAITING_PER_KEY_MAX = 1_000
LIGHT_CALLS_MAX = 512
LIGHT_CALLS_PER_KEY_MAX = 256
LIGHT_CALLS_WAITING_MAX = 2_000
LIGHT_CALLS_WAITING_PER_KEY_MAX = 500
HEAVY_READS_MAX = 4
HEAVY_READS_PER_KEY_MAX = 2
HEAVY_READS_WAITING_MAX = 1_000
HEAVY_READS_WAITING_PER_KEY_MAX = 250
CHORES_MAX = 4
CHORES_PER_KEY_MAX = 2
CHORES_WAITING_MAX = 32
CHORES_WAITING_PER_KEY_MAX = 8

SLOT_SECONDS_MAX = 10.0
"""How long a call waits for a slot before it is refused."""
REFUSAL_SECONDS = 0.25
"""How long a refusal for load is delayed, so that the client does not call again at once."""

RESPONSES_BYTES_MAX = 8 * RESPONSE_BYTES_MAX
"""Responses of heavy reads, from their beginning until they are sent: of all keys, and of one. Other loads
have a bound for each key alone, so that a client that does not read delays its own key only."""
RESPONSES_BYTES_PER_KEY_MAX = 2 * RESPONSE_BYTES_MAX
OWNER_RESPONSES_BYTES_PER_KEY_MAX = 8 * RESPONSE_BYTES_MAX
"""More than for other loads: many workers may share a key, and must not wait for one that hangs."""
JOB_DATA_BYTES_MAX = PAYLOAD_BYTES_MAX + RESULT_BYTES_MAX + CHECKPOINT_BYTES_MAX
BODY_BYTES_SMALL = 16 * 1024
"""Requests up to this size are bounded by their number; larger ones share a limited memory."""
BODIES_BYTES_MAX = 32 * REQUEST_BYTES_MAX
BODIES_BYTES_PER_KEY_MAX = 8 * REQUEST_BYTES_MAX
BODIES_WAITING_MAX = 2_000
BODIES_WAITING_PER_KEY_MAX = 500
SEND_BYTES = 64 * 1024
"""A response is handed to its connection in chunks of this size, the next when the last is sent."""
