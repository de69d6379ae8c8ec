"""Every limit of the server, named with its unit."""

from holdfast.core.limits import CHECKPOINT_BYTES_MAX, PAYLOAD_BYTES_MAX, RESULT_BYTES_MAX

REQUEST_BYTES_MAX = 1024 * 1024
REQUEST_FIELDS_MAX = 200_000
"""Fields in a request: each takes a microsecond or two to decode, in which nobody else is answered."""
PUBLISH_BYTES_MAX = 32 * 1024 * 1024
"""One message of PublishJobEvents: a client that could not reach a server for a while sends all it has."""
PUBLISH_FIELDS_MAX = 500_000
"""Fields in such a message, if it is larger than other requests: each takes about 100 bytes once decoded."""
PUBLISH_ROOM_BYTES = 2 * PUBLISH_BYTES_MAX
"""All messages together that are larger than other requests, and of one key."""
PUBLISH_ROOM_BYTES_PER_KEY = PUBLISH_BYTES_MAX
PUBLISH_SECONDS_MAX = 60.0
PUBLISH_QUIET_SECONDS_MAX = 900.0
"""How long a publish stream may be open without a message: as long as a job may be quiet."""
PUBLISH_STREAMS_MAX = 2_000
PUBLISH_STREAMS_PER_KEY_MAX = 1_000
GZIP_RATIO_MAX = 1_032
"""How much larger gzip can make anything."""
ANSWER_BYTES_MAX = 8 * 1024 * 1024
CHANGED_BYTES_MAX = REQUEST_BYTES_MAX
"""Payloads, results and checkpoints in the answer to a call that changes many jobs: as much as a request has,
so that new jobs come back whole, and so does any job that is changed alone."""
ENDINGS_PER_TOKEN_MAX = 10
"""Different endings of one attempt in one call: to answer each, the history of its job is read through."""
COMPRESS_BYTES_MIN = 1024
HEADER_BYTES_MAX = 16 * 1024
PIPELINED_MAX = 32
"""Requests that a client may send on one connection before the first of them is answered."""
CONNECTIONS_MAX = 20_000
"""By HTTP, or half of the descriptors that the process may have. By gRPC a quarter of that."""
ADDRESS_SHARE = 2
"""One address may have the half of them open without a key that counts."""
KEY_SHARE = 2
"""One key may have calls under way on half of the connections by HTTP."""
WAITING_SHARE = 4
"""One key may have as many calls that wait as a quarter of the connections by HTTP, which is half of
`WAITING_MAX` at most: so its heartbeats come in though all its claims wait."""
DESCRIPTORS_MAX = 65_536
"""What the server asks the system for when it starts."""
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
WALK_ITEMS_MAX = 100_000
LIST_CALLS_MAX = 50
FEED_CALLS_MAX = 50
"""Pages of the store that are looked through for a caller who may not know that they are empty to it."""
LOOK_SECONDS_MAX = 0.25
"""How long such pages are looked through before the caller gets an empty page with a cursor."""
QUEUE_ITEMS_MAX = 1_000_000

OWNER_CALLS_MAX = 1_024
"""Calls under way at once by owners of attempts, all others that are quick, and reads of much."""
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

TURN_SECONDS_MAX = 10.0
"""How long a call waits for its turn before its caller is told to come again."""
REFUSAL_SECONDS = 0.25
"""How long a refusal for load is held back."""

ANSWERS_BYTES_MAX = 8 * ANSWER_BYTES_MAX
"""Answers of heavy reads, from when they are begun until they are sent: of all keys, and of one. Other kinds
have a bound for each key alone, so that a key that does not read makes nobody else wait."""
ANSWERS_BYTES_PER_KEY_MAX = 2 * ANSWER_BYTES_MAX
OWNER_ANSWERS_BYTES_PER_KEY_MAX = 8 * ANSWER_BYTES_MAX
"""More than of other kinds: many workers may share a key, and must not wait for one that hangs."""
JOB_DATA_BYTES_MAX = PAYLOAD_BYTES_MAX + RESULT_BYTES_MAX + CHECKPOINT_BYTES_MAX
BODY_BYTES_SMALL = 16 * 1024
"""Requests up to this size are bounded by their number; larger ones share memory of their own."""
BODIES_BYTES_MAX = 32 * REQUEST_BYTES_MAX
BODIES_BYTES_PER_KEY_MAX = 8 * REQUEST_BYTES_MAX
BODIES_WAITING_MAX = 2_000
BODIES_WAITING_PER_KEY_MAX = 500
SEND_BYTES = 64 * 1024
"""An answer is handed to its connection in pieces of this size, the next when the last is on its way."""
