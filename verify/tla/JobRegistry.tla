----------------------------- MODULE JobRegistry -----------------------------
(* The registry among clients that see little.                                 *)
(*                                                                             *)
(* Sending is not a step. A request may arrive as soon as its sender could     *)
(* have known what it says, and from then on at any time, again and again, in  *)
(* any order, or never: so it is delayed, doubled, reordered and lost, and a   *)
(* retry under the same op_id is one more arrival. An answer is given once per *)
(* arrival; its receiver may act on it at any later time, or never see it.     *)
(* A lease may lapse at any instant, and a lapsed one may be renewed.          *)
EXTENDS Lifecycle

CONSTANTS
    JobCount,      \* how many jobs there are
    ClaimCount,    \* how many claims are asked for, by anybody
    Cancels,       \* which cancels are asked for, of each job
    Writes         \* whether owners write to the resource behind the lock

ASSUME Cancels \subseteq {"soft", "hard"}

VARIABLES
    record,     \* what the store holds of each job
    log,        \* the registry events of each job
    lock,       \* the resource lock: its token and the job that holds it
    granted,    \* tokens in the order in which they were granted under the lock
    answers,    \* what was ever answered
    resource,   \* what the resource behind the lock has accepted
    gap,        \* events that are not written yet: none, unless the design is twoStep
    readings    \* what was read to be acted upon later: nothing, unless the design is faulty

variables == <<record, log, lock, granted, answers, resource, gap, readings>>
Jobs == 1..JobCount

Init ==
    /\ record = [j \in Jobs |-> NewRecord]
    /\ log = [j \in Jobs |-> <<FirstEvent>>]
    /\ lock = FreeLock
    /\ granted = <<>>
    /\ answers = {}
    /\ resource = [highest |-> 0, last |-> 0]
    /\ gap = [j \in Jobs |-> <<>>]
    /\ readings = {}

------------------------------------------------------------------------------
(* Answers *)

Answer(kind, op, job, event, state) == [
    kind |-> kind, op |-> op, job |-> job, version |-> event.offset, token |-> event.token,
    attempt |-> event.attempt, state |-> state]

Ok(op, d) == Answer("ok", op, d.job, d.events[Len(d.events)], d.record.state)

Bare(kind, op, job) == [
    kind |-> kind, op |-> op, job |-> job, version |-> 0, token |-> 0, attempt |-> 0, state |-> ""]

Offsets(op, job) == {n \in 1..Len(log[job]) : log[job][n].op = op}

(* registry/commit_queue.py: as_of *)
AsOf(op, job) ==
    LET last == CHOOSE n \in Offsets(op, job) : \A m \in Offsets(op, job) : m <= n
        moves == SelectSeq(SubSeq(log[job], 1, last), LAMBDA event : event.to /= "")
    IN Answer("ok", op, job, log[job][last], moves[Len(moves)].to)

(* registry/commit_queue.py: what changed nothing is looked up in the job's history *)
FromHistory(kind, op, job) ==
    IF Offsets(op, job) /= {} /\ ~On("noHistoryLook") THEN AsOf(op, job) ELSE Bare(kind, op, job)

------------------------------------------------------------------------------
(* One commit: record, events and lock together *)

Tell(told) ==
    /\ told \notin answers
    /\ answers' = answers \cup {told}
    /\ UNCHANGED <<record, log, lock, granted, gap>>

Commit(d, told) ==
    /\ gap[d.job] = <<>>
    /\ record' = [record EXCEPT ![d.job] = d.record]
    /\ lock' = d.lock
    /\ granted' = IF Locked /\ \E n \in 1..Len(d.events) : d.events[n].type = "job_claimed"
                  THEN Append(granted, d.record.token) ELSE granted
    /\ IF On("twoStep")
       THEN /\ gap' = [gap EXCEPT ![d.job] = <<[events |-> d.events, told |-> told]>>]
            /\ UNCHANGED <<log, answers>>
       ELSE /\ log' = [log EXCEPT ![d.job] = @ \o d.events]
            /\ answers' = answers \cup told
            /\ UNCHANGED gap

(* An answer that leaves before its commit is safe, and a power cut in between. *)
CommitAndTell(d, op) ==
    \/ Commit(d, {Ok(op, d)})
    \/ On("ackFirst") /\ Tell(Ok(op, d))

------------------------------------------------------------------------------
(* Claims. They are numbered as they are granted. *)

Tries == IF On("freshOpOnRetry") THEN {0, 1} ELSE {0}
Grants == {a \in answers : a.kind = "ok" /\ a.op.verb = "claim"}

ClaimOps ==
    LET next == Cardinality({a.op.by : a \in Grants}) + 1
    IN {Op("claim", n, try) : n \in 1..Smaller(next, ClaimCount), try \in Tries}

ClaimedIn(op) == {j \in Jobs : \E n \in Offsets(op, j) : log[j][n].type = "job_claimed"}

ClaimArrives ==
    \E op \in ClaimOps, j \in Jobs :
        /\ ClaimedIn(op) = {} \/ On("claimNotDeduped")
        /\ ~On("lookThenClaim") /\ ~On("checkThenClaim")
        /\ \E d \in Claim(Draft(j, record[j], lock, op, 0), op) : CommitAndTell(d, op)
        /\ UNCHANGED <<resource, readings>>

(* The grant again, while it is held; nothing, when it is gone. *)
ClaimArrivesAgain ==
    \E op \in ClaimOps : \E j \in ClaimedIn(op) :
        /\ record[j].lease /= "none" /\ record[j].claim = op
        /\ LET first == CHOOSE n \in Offsets(op, j) : log[j][n].type = "job_claimed"
           IN Tell(Answer("ok", op, j, log[j][first], "assigned"))
        /\ UNCHANGED <<resource, readings>>

------------------------------------------------------------------------------
(* What an owner asks for, under the token of its grant. The owner may be one of long ago. *)

(* The outcome is chosen when it is first read; the same request says the same again. *)
Said(op, job) ==
    LET before == {log[job][n].cause : n \in Offsets(op, job)}
    IN IF before = {} THEN Outcomes ELSE before

EndArrives ==
    \E grant \in Grants, try \in Tries :
        LET op == Op("end", grant.op.by, try)
            job == record[grant.job]
            draft == Draft(grant.job, job, lock, op, grant.token)
        IN /\ IF Holds(job, grant.token) \/ (On("noFence") /\ job.lease /= "none")
              THEN \E outcome \in Said(op, grant.job) : \E d \in End(draft, outcome) :
                    CommitAndTell(d, op)
              ELSE Tell(FromHistory("refused", op, grant.job))
           /\ UNCHANGED <<resource, readings>>

BeatArrives ==
    \E grant \in Grants :
        LET job == record[grant.job]
            draft == Draft(grant.job, job, lock, Op("start", grant.token, 0), grant.token)
        IN /\ Holds(job, grant.token) \/ (On("blindBeat") /\ job.lease /= "none")
           /\ Commit(Beat(draft, grant.op.by), {})
           /\ UNCHANGED <<resource, readings>>

(* The resource behind the lock: UPDATE ... SET token = :token WHERE token <= :token *)
WriteArrives ==
    \E grant \in Grants :
        /\ Writes
        /\ grant.token >= resource.highest \/ On("noResourceFence")
        /\ resource' = [highest |-> Larger(grant.token, resource.highest), last |-> grant.token]
        /\ UNCHANGED <<record, log, lock, granted, answers, gap, readings>>

------------------------------------------------------------------------------
(* What others do: users, sweepers, time *)

CancelArrives ==
    \E j \in Jobs, how \in Cancels, try \in Tries :
        LET op == Op("cancel", IF how = "hard" THEN -j ELSE j, try)
            drafts == Cancel(Draft(j, record[j], lock, op, 0), how = "hard")
        IN /\ IF drafts = {} THEN Tell(FromHistory("refused", op, j))
              ELSE \E d \in drafts : IF d.events = <<>> THEN Tell(FromHistory("same", op, j))
                                     ELSE CommitAndTell(d, op)
           /\ UNCHANGED <<resource, readings>>

Lapse ==
    \E j \in Jobs :
        /\ record[j].lease = "live"
        /\ record' = [record EXCEPT ![j].lease = "lapsed"]
        /\ UNCHANGED <<log, lock, granted, answers, resource, gap, readings>>

Expire ==
    \E j \in Jobs :
        /\ record[j].lease = "lapsed"
        /\ ~On("blindExpire")
        /\ \E d \in CloseExpired(Draft(j, record[j], lock, NoOp, 0)) : Commit(d, {})
        /\ UNCHANGED <<resource, readings>>

DeadlinePasses ==
    \E j \in Jobs :
        /\ record[j].state = "queued"
        /\ \E d \in PassDeadline(Draft(j, record[j], lock, NoOp, 0)) : Commit(d, {})
        /\ UNCHANGED <<resource, readings>>

------------------------------------------------------------------------------
(* Faulty designs that read in one step and write in another, or write in two *)

Read(reading) ==
    /\ readings' = readings \cup {reading}
    /\ UNCHANGED <<record, log, lock, granted, answers, resource, gap>>

ReadBeforeClaim ==
    \E op \in ClaimOps, j \in Jobs :
        /\ \/ On("lookThenClaim") /\ ClaimedIn(op) = {}
           \/ On("checkThenClaim") /\ Claimable(Draft(j, record[j], lock, op, 0))
        /\ Read([op |-> op, job |-> j])

(* What decide itself still compares is the op_id of the last grant. *)
ClaimAfterReading ==
    \E reading \in readings :
        LET j == reading.job
            d == Draft(j, record[j], lock, reading.op, 0)
            drafts == IF On("checkThenClaim") THEN {Grant(d, reading.op)}
                      ELSE IF record[j].claim = reading.op THEN {}
                      ELSE Claim(d, reading.op)
        IN /\ reading.op /= NoOp
           /\ \E after \in drafts : CommitAndTell(after, reading.op)
           /\ UNCHANGED <<resource, readings>>

ReadBeforeExpire ==
    \E j \in Jobs :
        /\ On("blindExpire")
        /\ record[j].lease = "lapsed"
        /\ Read([op |-> NoOp, job |-> j])

ExpireAfterReading ==
    \E reading \in readings :
        LET j == reading.job IN
        /\ reading.op = NoOp
        /\ record[j].lease /= "none"
        /\ \E d \in CloseExpired(Draft(j, record[j], lock, NoOp, 0)) : Commit(d, {})
        /\ UNCHANGED <<resource, readings>>

SecondWrite ==
    \E j \in Jobs :
        /\ gap[j] /= <<>>
        /\ log' = [log EXCEPT ![j] = @ \o gap[j][1].events]
        /\ answers' = answers \cup gap[j][1].told
        /\ gap' = [gap EXCEPT ![j] = <<>>]
        /\ UNCHANGED <<record, lock, granted, resource, readings>>

CrashBetweenWrites ==
    \E j \in Jobs :
        /\ gap[j] /= <<>>
        /\ gap' = [gap EXCEPT ![j] = <<>>]
        /\ UNCHANGED <<record, log, lock, granted, answers, resource, readings>>

------------------------------------------------------------------------------

Next ==
    \/ ClaimArrives \/ ClaimArrivesAgain
    \/ EndArrives \/ BeatArrives \/ WriteArrives
    \/ CancelArrives
    \/ Lapse \/ Expire \/ DeadlinePasses
    \/ ReadBeforeClaim \/ ClaimAfterReading
    \/ ReadBeforeExpire \/ ExpireAfterReading
    \/ SecondWrite \/ CrashBetweenWrites

Spec == Init /\ [][Next]_variables
==============================================================================
