------------------------------ MODULE Lifecycle ------------------------------
(* The rules of one job, as core/state.py and core/lifecycle have them. Pure:  *)
(* a draft goes in, a draft comes out. tests/test_model.py compares the states *)
(* and arrows with the code.                                                   *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Broken,        \* the switches of a faulty design; {} is the product
    Locked,        \* whether all jobs share one resource lock
    MaxFailures,   \* the two budgets of a job
    MaxCrashes,
    Outcomes,      \* how owners may end their attempt
    Policies,      \* how a job may end when a budget is used up
    Deadlines      \* whether a job's deadline may pass, at any instant

ASSUME Outcomes \subseteq {"success", "failure", "fatal", "stopped", "released"}
ASSUME Policies \subseteq {"failed", "timeout", "dead_lettered"}
ASSUME Broken \subseteq {
    "noFence",            \* complete and release do not compare the token
    "freshOpOnRetry",     \* a client that repeats a request uses a new op_id
    "blindBeat",          \* a heartbeat does not compare the token
    "twoStep",            \* the record is written first, its events afterwards
    "ackFirst",           \* the response is sent before the commit is durable
    "tokenReset",         \* every grant counts its token from 1
    "noResourceFence",    \* the resource does not compare tokens
    "claimNotDeduped",    \* a repeated claim is decided like a new one
    "lookThenClaim",      \* the history is searched before the claim, not with it
    "checkThenClaim",     \* a claim overwrites what came after its read
    "blindExpire",        \* an expiry is written from an earlier read
    "noHistoryLook",      \* a refused repeat is refused, though it was applied
    "cancelOverEnd",      \* a hard cancel changes a job that has ended
    "cancelForgotten",    \* an expiry ignores a requested cancel
    "budgetForgotten",    \* an expired lease costs nothing, however often
    "lockIgnored",        \* a claim ignores the holder of the lock
    "lockTokenPerJob"     \* tokens under the lock are those of the job alone
    }

On(switch) == switch \in Broken

Leased == {"assigned", "running"}
Ended == {"succeeded", "failed", "cancelled", "timeout", "dead_lettered"}
Rank == [
    queued |-> 2, assigned |-> 3, running |-> 4,
    succeeded |-> 8, failed |-> 8, cancelled |-> 8, timeout |-> 8, dead_lettered |-> 8]
States == DOMAIN Rank

Arrows == {
    <<"T1", "new", "queued", "job_queued">>,
    <<"T5", "queued", "cancelled", "job_cancelled">>,
    <<"T6", "queued", "assigned", "job_claimed">>,
    <<"T7", "assigned", "running", "job_started">>,
    <<"T9", "running", "succeeded", "job_succeeded">>,
    <<"T15", "assigned", "failed", "job_failed">>,
    <<"T15", "running", "failed", "job_failed">>,
    <<"T16", "assigned", "queued", "job_requeued">>,
    <<"T16", "running", "queued", "job_requeued">>,
    <<"T17", "queued", "dead_lettered", "job_dead_lettered">>,
    <<"T17", "assigned", "dead_lettered", "job_dead_lettered">>,
    <<"T17", "running", "dead_lettered", "job_dead_lettered">>,
    <<"T18", "queued", "timeout", "job_timed_out">>,
    <<"T18", "assigned", "timeout", "job_timed_out">>,
    <<"T18", "running", "timeout", "job_timed_out">>,
    <<"T19", "assigned", "cancelled", "job_cancelled">>,
    <<"T19", "running", "cancelled", "job_cancelled">>}

(* Left out, each with its reason:
   pending: hand-over to an executor; no lease, no token, one writer
   submitting: the same
   aggregating: as running, under the same lease and token
   validating: the verdict on outputs comes after the lease and needs no token
   partial_success: the same *)

EventTo == [
    queued |-> "job_requeued", assigned |-> "job_claimed", running |-> "job_started",
    succeeded |-> "job_succeeded", failed |-> "job_failed", cancelled |-> "job_cancelled",
    timeout |-> "job_timed_out", dead_lettered |-> "job_dead_lettered"]

(* An op names who asked for what: the n-th claim, its end, a cancel of job n  *)
(* (-n: a hard one), or what the registry does by itself. In an event, `given` *)
(* is the token that was shown for it, 0 where none is asked for.              *)
Op(verb, by, try) == [verb |-> verb, by |-> by, try |-> try]
NoOp == Op("none", 0, 0)

NewRecord == [
    state |-> "queued", attempt |-> 1, version |-> 1, moves |-> 1, failures |-> 0, crashes |-> 0,
    token |-> 0, lease |-> "none", claim |-> NoOp, cancel |-> FALSE, renewed |-> 0]

FirstEvent == [
    type |-> "job_queued", from |-> "new", to |-> "queued", attempt |-> 1, offset |-> 1, move |-> 1,
    token |-> 0, failures |-> 0, crashes |-> 0,
    op |-> Op("enqueue", 0, 0), given |-> 0, cause |-> ""]

FreeLock == [token |-> 0, holder |-> 0]

------------------------------------------------------------------------------
(* Drafts: core/lifecycle/draft.py *)

Draft(job, record, lock, op, given) ==
    [job |-> job, record |-> record, lock |-> lock, op |-> op, given |-> given, cause |-> "",
     events |-> <<>>]

Written(d, after, type, from, to) ==
    [d EXCEPT
        !.record = after,
        !.events = Append(@, [
            type |-> type, from |-> from, to |-> to, attempt |-> after.attempt,
            offset |-> after.version, move |-> after.moves, token |-> after.token,
            op |-> d.op, given |-> d.given, failures |-> after.failures, crashes |-> after.crashes,
            cause |-> d.cause])]

Move(d, to) ==
    LET before == d.record
        ends == before.state \in Leased /\ to \notin Leased
        after == [before EXCEPT
            !.state = to,
            !.attempt = IF to = "queued" THEN @ + 1 ELSE @,
            !.version = @ + 1,
            !.moves = @ + 1,
            !.lease = IF ends THEN "none" ELSE @,
            !.renewed = IF ends THEN 0 ELSE @]
        freed == IF ends /\ d.lock.holder = d.job THEN [d.lock EXCEPT !.holder = 0] ELSE d.lock
    IN [Written(d, after, EventTo[to], before.state, to) EXCEPT !.lock = freed]

Note(d, type) ==
    Written(d, [d.record EXCEPT !.version = @ + 1, !.cancel = TRUE], type, "", "")

Cost(d, failures, crashes) ==
    [d EXCEPT !.record.failures = @ + failures, !.record.crashes = @ + crashes]

Started(d) == IF d.record.state = "assigned" THEN Move(d, "running") ELSE d

------------------------------------------------------------------------------
(* Decisions: each is the set of drafts it may end in *)

Larger(a, b) == IF a > b THEN a ELSE b
Smaller(a, b) == IF a < b THEN a ELSE b

Holds(record, token) == record.lease /= "none" /\ token = record.token

Claimable(d) ==
    /\ d.record.state = "queued"
    /\ Locked => d.lock.holder = 0 \/ On("lockIgnored")

Grant(d, op) ==
    LET own == d.record.token + 1
        token == IF On("tokenReset") THEN 1
                 ELSE IF Locked /\ ~On("lockTokenPerJob") THEN Larger(own, d.lock.token + 1)
                 ELSE own
        ready == [d EXCEPT
            !.op = op,
            !.cause = "",
            !.record.token = token,
            !.record.lease = "live",
            !.record.renewed = op.by,
            !.record.claim = op,
            !.lock = IF Locked THEN [token |-> token, holder |-> d.job] ELSE @]
    IN Move(ready, "assigned")

DeadlineEnds ==
    IF Deadlines THEN {IF end = "dead_lettered" THEN end ELSE "timeout" : end \in Policies} ELSE {}

CloseExpired(d) ==
    LET own == [Cost(d, 0, 1) EXCEPT
            !.op = Op("expire", d.record.version, 0), !.cause = d.record.lease]
        spent == own.record.crashes >= MaxCrashes /\ ~On("budgetForgotten")
    IN IF own.record.cancel /\ ~On("cancelForgotten") THEN {Move(own, "cancelled")}
       ELSE IF spent THEN {Move(own, end) : end \in Policies}
       ELSE {Move(own, "queued")} \cup {Move(own, end) : end \in DeadlineEnds}

PassDeadline(d) ==
    LET own == [d EXCEPT !.op = Op("expire", d.record.version, 0)]
    IN {Move(own, end) : end \in DeadlineEnds}

Claim(d, op) ==
    LET free == IF d.record.lease = "lapsed" THEN CloseExpired(d) ELSE {d}
    IN {Grant(each, op) : each \in {f \in free : Claimable(f)}}

Fail(d) ==
    IF d.record.cancel THEN {Move(d, "cancelled")}
    ELSE IF d.record.failures >= MaxFailures THEN {Move(d, end) : end \in Policies}
    ELSE {Move(d, "queued")}

End(draft, outcome) ==
    LET d == [draft EXCEPT !.cause = outcome] IN
    CASE outcome = "success" -> {Move(Started(d), "succeeded")}
      [] outcome = "failure" -> Fail(Cost(Started(d), 1, 0))
      [] outcome = "fatal" ->
            {Move(Cost(Started(d), 1, 0), IF d.record.cancel THEN "cancelled" ELSE "failed")}
      [] outcome = "stopped" -> {Move(Started(d), "cancelled")}
      [] outcome = "released" -> {Move(d, IF d.record.cancel THEN "cancelled" ELSE "queued")}

Beat(d, owner) ==
    Started([d EXCEPT !.record.lease = "live", !.record.renewed = owner])

(* No draft: refused. A draft without events: there is nothing to do. *)
Cancel(d, hard) ==
    IF d.record.state \in Ended /\ ~(hard /\ On("cancelOverEnd")) THEN {}
    ELSE IF d.record.state = "queued" \/ hard THEN {Move(d, "cancelled")}
    ELSE IF d.record.cancel THEN {d}
    ELSE {Note(d, "job_cancel_requested")}
==============================================================================
