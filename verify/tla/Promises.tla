------------------------------ MODULE Promises -------------------------------
(* What is always true, and what must be able to happen.                       *)
EXTENDS JobRegistry, TLC

Events(j) == 1..Len(log[j])
Whole(j) == gap[j] = <<>>   \* always, but for twoStep: there, a second write may be on its way

Moves(j) == SelectSeq(log[j], LAMBDA event : event.to /= "")

------------------------------------------------------------------------------
(* The log: I1 to I5 *)

VersionChain ==
    \A j \in Jobs : Whole(j) =>
        /\ record[j].version = Len(log[j])
        /\ \A n \in Events(j) : log[j][n].offset = n

OneEventPerTransition ==
    \A j \in Jobs : Whole(j) => LET moves == Moves(j) IN
        /\ record[j].moves = Len(moves)
        /\ \A n \in 1..Len(moves) : moves[n].move = n

Legal == {<<arrow[2], arrow[3], arrow[4]>> : arrow \in Arrows}

OnlyLegalArrows ==
    \A j \in Jobs : LET moves == Moves(j) IN
        \A n \in 1..Len(moves) :
            /\ moves[n].from = IF n = 1 THEN "new" ELSE moves[n - 1].to
            /\ <<moves[n].from, moves[n].to, moves[n].type>> \in Legal

OnlyForward ==
    \A j \in Jobs : LET moves == Moves(j) IN
        /\ \A n \in 2..Len(moves) :
            LET a == moves[n - 1] b == moves[n] IN
                \/ a.attempt < b.attempt
                \/ a.attempt = b.attempt /\ Rank[a.to] < Rank[b.to]
        /\ \A n \in Events(j) : log[j][n].to \in Ended => n = Len(log[j])

(* core/projection.py: fold *)
Apply(folded, event) ==
    LET seen == [folded EXCEPT
            !.version = event.offset, !.attempt = event.attempt, !.token = event.token]
    IN IF event.to = "" THEN [seen EXCEPT !.cancel = TRUE]
       ELSE [seen EXCEPT
            !.state = event.to, !.moves = event.move,
            !.failures = event.failures, !.crashes = event.crashes,
            !.claim = IF event.to = "assigned" THEN event.op
                      ELSE IF event.to \in Leased THEN @ ELSE NoOp]

Facts(r) == [
    state |-> r.state, version |-> r.version, moves |-> r.moves, attempt |-> r.attempt,
    failures |-> r.failures, crashes |-> r.crashes, token |-> r.token, cancel |-> r.cancel,
    claim |-> IF r.state \in Leased THEN r.claim ELSE NoOp]

Fold(events) ==
    LET upto[n \in 0..Len(events)] ==
        IF n = 0 THEN Facts([NewRecord EXCEPT !.version = 0, !.moves = 0])
        ELSE Apply(upto[n - 1], events[n])
    IN upto[Len(events)]

StateIsFold == \A j \in Jobs : Whole(j) => Facts(record[j]) = Fold(log[j])

------------------------------------------------------------------------------
(* Ownership: I6, I7, I9, I10, I16 *)

Claims(j) == SelectSeq(log[j], LAMBDA event : event.type = "job_claimed")

JobTokensRise ==
    \A j \in Jobs : LET claims == Claims(j) IN
        \A n \in 2..Len(claims) : claims[n - 1].token < claims[n].token

LockTokensRise == \A n \in 2..Len(granted) : granted[n - 1] < granted[n]

OneHolderPerJob ==
    \A j \in Jobs :
        /\ (record[j].lease /= "none") = (record[j].state \in Leased)
        /\ LET claims == Claims(j) IN
            \A n \in 2..Len(claims) : \E k \in claims[n - 1].offset..claims[n].offset :
                log[j][k].from \in Leased /\ log[j][k].to \in States \ Leased

OneHolderPerLock ==
    Locked => \A j \in Jobs : (lock.holder = j) = (record[j].state \in Leased)

TokenBefore(j, n) == IF n = 1 THEN 0 ELSE log[j][n - 1].token

NoStaleAct ==
    \A j \in Jobs : \A n \in Events(j) : log[j][n].given \in {0, TokenBefore(j, n)}

(* Whoever ends an attempt or renews a lease is the one to whom it was granted last. *)
OnlyTheOwnerActs ==
    \A j \in Jobs :
        /\ record[j].lease /= "none" => record[j].renewed = record[j].claim.by
        /\ \A n \in Events(j) : log[j][n].op.verb = "end" =>
            \E k \in 1..n :
                /\ log[j][k].type = "job_claimed" /\ log[j][k].op.by = log[j][n].op.by
                /\ \A m \in (k + 1)..n : log[j][m].type /= "job_claimed"

LeaseNotCutShort ==
    \A j \in Jobs : \A n \in Events(j) :
        log[j][n].op.verb = "expire" /\ log[j][n].from \in Leased => log[j][n].cause = "lapsed"

ResourceSeesTokensRise == resource.last = resource.highest

------------------------------------------------------------------------------
(* Requests and answers: I2, I13, I15, I23, I29, I30. A request is known by    *)
(* verb and number, whatever op_id a faulty client sends it under.             *)

Same(op, other) == op.verb = other.verb /\ op.by = other.by

Applied(op) ==
    UNION {{<<j, n>> : n \in {k \in Events(j) :
        Same(log[j][k].op, op) /\ log[j][k].type /= "job_started"}} : j \in Jobs}

OpAppliedOnce == \A a \in answers : a.kind = "ok" => Cardinality(Applied(a.op)) <= 1

OkIsInTheLog ==
    \A a \in answers : a.kind = "ok" =>
        /\ a.version \in Events(a.job)
        /\ LET event == log[a.job][a.version] IN
            /\ event.op = a.op
            /\ event.token = a.token
            /\ event.attempt = a.attempt
            /\ event.to \in {"", a.state}

RefusedIsNotInTheLog ==
    \A a \in answers :
        /\ a.kind = "refused" => Applied(a.op) = {}
        /\ a.kind = "same" => Applied(a.op) = {} /\ record[a.job].cancel

OneAnswerPerOp ==
    LET ok == {a \in answers : a.kind = "ok"}
    IN Cardinality({a.op : a \in ok}) = Cardinality(ok)

CancelIsKept ==
    \A j \in Jobs : \A n \in Events(j) :
        log[j][n].type = "job_cancel_requested" =>
            \A m \in n..Len(log[j]) : log[j][m].type /= "job_requeued"

BudgetsAreKept ==
    \A j \in Jobs :
        record[j].state \notin Ended =>
            record[j].crashes < MaxCrashes /\ record[j].failures < MaxFailures

------------------------------------------------------------------------------
(* What must be able to happen: TLC has to refute each of these *)

By(j, verb) == \E n \in Events(j) : log[j][n].op.verb = verb

NeverSucceedsAfterAnExpiry == \A j \in Jobs : ~(record[j].state = "succeeded" /\ By(j, "expire"))

NeverRefusesAStaleOwner ==
    \A a \in answers : ~(a.kind = "refused" /\ a.op.verb = "end" /\ record[a.job].lease = "live")

NeverEndsByItsBudget == \A j \in Jobs : ~(record[j].crashes = MaxCrashes)

NeverCancelledByAnExpiry ==
    \A j \in Jobs : ~(record[j].state = "cancelled" /\ By(j, "expire") /\ By(j, "cancel"))

NeverServesBothJobsInTurn ==
    ~(Len(granted) = 3 /\ resource.last = 3 /\ \A j \in Jobs : record[j].state = "succeeded")

------------------------------------------------------------------------------
(* Every arrow that was taken, printed once by each thread of TLC *)

ASSUME TLCSet(1, {})

Latest(j) ==
    LET new == {n \in Events(j) : n > Len(log[j]) - 2 /\ log[j][n].to /= ""}
    IN {<<log[j][n].from, log[j][n].to>> : n \in new}

ShowArrows ==
    LET taken == UNION {Latest(j) : j \in Jobs}
        shown == TLCGet(1)
    IN taken \subseteq shown \/
        /\ \A arrow \in taken \ shown : PrintT(<<"taken", arrow[1], arrow[2]>>)
        /\ TLCSet(1, shown \cup taken)
==============================================================================
