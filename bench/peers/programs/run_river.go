// River on PostgreSQL: its client with riverpgxv5, as many workers as its own benchmark has.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

const (
	chunk       = 5000
	workers     = 2000
	pool        = 20
	cooldown    = 2 * time.Millisecond
	poll        = 100 * time.Millisecond
	stuckAfter  = 10 * time.Second
	jobTimeout  = 9 * time.Second
	ended       = "('completed', 'cancelled', 'discarded')"
	settingsFor = "2 worker processes, MaxWorkers %d, FetchCooldown %s, FetchPollInterval %s, LISTEN/NOTIFY, " +
		"a pool of %d; InsertManyFast (COPY) by %d"
)

type NoopArgs struct{}

func (NoopArgs) Kind() string { return "noop" }

type TimedArgs struct {
	Sent float64 `json:"sent"`
}

func (TimedArgs) Kind() string { return "timed" }

type HoldsArgs struct{}

func (HoldsArgs) Kind() string { return "holds" }

func handlers() *river.Workers {
	made := river.NewWorkers()
	river.AddWorker(made, river.WorkFunc(func(context.Context, *river.Job[NoopArgs]) error {
		counted.add()
		return nil
	}))
	river.AddWorker(made, river.WorkFunc(func(_ context.Context, job *river.Job[TimedArgs]) error {
		waited(job.Args.Sent)
		return nil
	}))
	river.AddWorker(made, river.WorkFunc(func(context.Context, *river.Job[HoldsArgs]) error {
		hold()
		return nil
	}))
	return made
}

func connections() *pgxpool.Pool {
	config := must(pgxpool.ParseConfig(url))
	config.MaxConns = pool
	return must(pgxpool.NewWithConfig(forever, config))
}

// Also for who only inserts: it notifies at most once in this time.
func client(config *river.Config) *river.Client[pgx.Tx] {
	config.FetchCooldown = cooldown
	config.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	return must(river.NewClient(riverpgxv5.New(connections()), config))
}

type atOnce struct{}

func (atOnce) NextRetry(*rivertype.JobRow) time.Time { return time.Now() }

func work() {
	config := &river.Config{
		FetchPollInterval: poll,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		Workers:           handlers(),
	}
	if scene == "recovery" {
		config.JobTimeout, config.RescueStuckJobsAfter, config.RetryPolicy = jobTimeout, stuckAfter, atOnce{}
	}
	started, stop := signal.NotifyContext(forever, syscall.SIGTERM)
	defer stop()
	running := client(config)
	check(running.Start(started))
	<-running.Stopped()
}

func left() int {
	var jobs int
	text := "SELECT count(*) FROM river_job WHERE kind = 'noop' AND state NOT IN " + ended
	check(asking().QueryRow(forever, text).Scan(&jobs))
	return jobs
}

var asked *pgxpool.Pool

func asking() *pgxpool.Pool {
	if asked == nil {
		asked = connections()
	}
	return asked
}

func many(jobs int) answer {
	inserting := client(&river.Config{})
	return bulk(jobs, chunk, func(size int) {
		params := make([]river.InsertManyParams, size)
		for n := range params {
			params[n].Args = NoopArgs{}
		}
		must(inserting.InsertManyFast(forever, params))
	})
}

func main() {
	insert := func() func() {
		inserting := client(&river.Config{})
		return func() { must(inserting.Insert(forever, NoopArgs{}, nil)) }
	}
	do(map[string]func([]string) any{
		"settings": func([]string) any { return fmt.Sprintf(settingsFor, workers, cooldown, poll, pool, chunk) },
		"recovery": func([]string) any {
			return fmt.Sprintf("RescueStuckJobsAfter %s, which must be longer than any job (here JobTimeout %s), "+
				"looked for by the leader every 30 s", stuckAfter, jobTimeout)
		},
		"setup": func([]string) any {
			migrating := must(rivermigrate.New(riverpgxv5.New(connections()), nil))
			must(migrating.Migrate(forever, rivermigrate.DirectionUp, nil))
			return nil
		},
		"work":   func([]string) any { work(); return nil },
		"bulk":   func(words []string) any { return many(number(words[0])) },
		"fill":   func(words []string) any { return many(number(words[0])) },
		"single": func(words []string) any { return single(number(words[0]), insert()) },
		"clients": func(words []string) any {
			return clients(number(words[0]), number(words[1]), insert())
		},
		"waits": func(words []string) any {
			inserting := client(&river.Config{})
			waits(number(words[0]), func(sent float64) { must(inserting.Insert(forever, TimedArgs{sent}, nil)) })
			return nil
		},
		"hold":  func([]string) any { must(client(&river.Config{}).Insert(forever, HoldsArgs{}, nil)); return nil },
		"left":  func([]string) any { return left() },
		"lefts": func([]string) any { return lefts(left) },
	})
}
