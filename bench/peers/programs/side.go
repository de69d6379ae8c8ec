// What a program in Go needs of the frame: its clock, its three handlers, its clients, its answers.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const (
	warmUp           = 20
	storeEvery       = 10 * time.Millisecond
	lookEvery        = 50 * time.Millisecond
	askEvery         = 5 * time.Millisecond
	clockMonotonicID = 1
)

var (
	folder = os.Getenv("PEERS_FOLDER")
	url    = os.Getenv("PEERS_URL")
	worker = os.Getenv("PEERS_WORKER")
	scene  = os.Getenv("PEERS_SCENE")

	began, offset = time.Now(), monotonic()
)

// CLOCK_MONOTONIC in seconds, the clock that all processes of the machine share.
func now() float64 { return offset + time.Since(began).Seconds() }

func monotonic() float64 {
	var moment syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonicID, uintptr(unsafe.Pointer(&moment)), 0)
	return float64(moment.Sec) + float64(moment.Nsec)/1e9
}

// The whole of the `noop` handler. Stored by a timer: count, first and latest moment, as in side.py.
type counter struct {
	lock        sync.Mutex
	jobs        uint64
	first, last float64
	waiting     bool
}

var counted counter

func (c *counter) add() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.last = now()
	if c.jobs++; c.jobs == 1 {
		c.first = c.last
		c.store()
	} else if !c.waiting {
		c.waiting = true
		time.AfterFunc(storeEvery, func() {
			c.lock.Lock()
			defer c.lock.Unlock()
			c.waiting = false
			c.store()
		})
	}
}

func (c *counter) store() {
	data := binary.LittleEndian.AppendUint64(nil, c.jobs)
	data = binary.LittleEndian.AppendUint64(data, math.Float64bits(c.first))
	data = binary.LittleEndian.AppendUint64(data, math.Float64bits(c.last))
	file := must(os.OpenFile(fmt.Sprintf("%s/count-%d", folder, os.Getpid()), os.O_WRONLY|os.O_CREATE, 0o644))
	defer file.Close()
	must(file.WriteAt(data, 0))
}

// The whole of the `timed` handler; `sent` is what `now()` gave just before the enqueue.
func waited(sent float64) {
	appendLine(fmt.Sprintf("waits-%d", os.Getpid()), fmt.Sprintf("%.4f", (now()-sent)*1000))
}

// The whole of the `holds` handler: say that it began, then wait for the file `go`.
func hold() {
	line := map[string]any{"worker": worker, "pid": os.Getpid(), "at": now()}
	appendLine("held.jsonl", string(must(json.Marshal(line))))
	for {
		if _, err := os.Stat(folder + "/go"); err == nil {
			return
		}
		time.Sleep(lookEvery)
	}
}

func appendLine(name, line string) {
	file := must(os.OpenFile(folder+"/"+name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644))
	defer file.Close()
	must(file.WriteString(line + "\n"))
}

type answer struct {
	Seconds float64 `json:"seconds"`
	Count   int     `json:"count"`
	P99     float64 `json:"p99_ms,omitempty"`
}

// `enqueueMany(size)` for each chunk; the first is the warm-up when there are more than three.
func bulk(jobs, chunk int, enqueueMany func(int)) answer {
	var told answer
	for left, first := jobs, jobs > 3*chunk; left > 0; first = false {
		size := min(left, chunk)
		at := now()
		enqueueMany(size)
		if !first {
			told.Seconds += now() - at
			told.Count += size
		}
		left -= size
	}
	return told
}

// `enqueue()` again and again, after some to warm up.
func single(jobs int, enqueue func()) answer {
	for range warmUp {
		enqueue()
	}
	at := now()
	for range jobs {
		enqueue()
	}
	return answer{Seconds: now() - at, Count: jobs}
}

// `many` goroutines that each await `enqueue()` again and again.
func clients(many, jobs int, enqueue func()) answer {
	each := max(1, jobs/many)
	all := func(times int) []float64 {
		waits := make([]float64, many*times)
		var group sync.WaitGroup
		for n := range many {
			group.Go(func() {
				for k := range times {
					at := now()
					enqueue()
					waits[n*times+k] = now() - at
				}
			})
		}
		group.Wait()
		return waits
	}
	all(1)
	at := now()
	waits := all(each)
	told := answer{Seconds: now() - at, Count: len(waits)}
	slices.Sort(waits)
	told.P99 = 1000 * waits[min(len(waits)-1, len(waits)*99/100)]
	return told
}

// `enqueue(sent)` now and then, where `sent` is the moment just before.
func waits(times int, enqueue func(float64)) {
	for range times {
		time.Sleep(time.Duration(30+rand.Float64()*60) * time.Millisecond)
		enqueue(now())
	}
}

// Say `ready`; after a line from the frame ask the store until nothing is left, and answer when it was asked.
func lefts(left func() int) float64 {
	left()
	fmt.Println("ready")
	must(os.Stdin.Read(make([]byte, 16)))
	for {
		asked := now()
		if left() == 0 {
			return asked
		}
		time.Sleep(askEvery)
	}
}

// Do the verb of the command line and print its answer as JSON; null where there is no such verb.
func do(verbs map[string]func(words []string) any) {
	var told any
	if act := verbs[os.Args[1]]; act != nil {
		told = act(os.Args[2:])
	}
	fmt.Println(string(must(json.Marshal(told))))
}

func number(word string) int { return must(strconv.Atoi(word)) }

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var forever = context.Background()
