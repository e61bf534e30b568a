// Keys per second through the queues of client-go and controller-runtime: added by 8 producers,
// taken and done by 8 consumers, all distinct. The peer of Belayer's workqueue benchmark.
//
// Prints one JSON object: the queue, seconds of wall and processor time, bytes allocated.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

const (
	producers = 8
	consumers = 8
)

type result struct {
	Queue     string  `json:"queue"`
	Wall      float64 `json:"wall"`
	CPU       float64 `json:"cpu"`
	Allocated uint64  `json:"allocated"`
}

func main() {
	which := flag.String("queue", "client-go", "client-go or controller-runtime")
	count := flag.Int("keys", 1_000_000, "how many keys")
	flag.Parse()

	keys := make([][]string, producers)
	for n := range *count {
		keys[n%producers] = append(keys[n%producers], fmt.Sprintf("namespace-%d/pod-%d", n%100, n))
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	started, used := time.Now(), cpu()
	switch *which {
	case "client-go":
		plain(keys, *count)
	case "controller-runtime":
		prioritized(keys, *count)
	default:
		fmt.Fprintf(os.Stderr, "there is no queue %q\n", *which)
		os.Exit(2)
	}
	wall, spent := time.Since(started), cpu()-used
	runtime.ReadMemStats(&after)
	_ = json.NewEncoder(os.Stdout).Encode(result{
		Queue:     *which,
		Wall:      wall.Seconds(),
		CPU:       spent.Seconds(),
		Allocated: after.TotalAlloc - before.TotalAlloc,
	})
}

// plain is client-go's own FIFO: no priorities, no delays, no rate limits.
func plain(keys [][]string, count int) {
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "bench"})
	done := make(chan int)
	for range consumers {
		go func() {
			taken := 0
			for {
				key, down := queue.Get()
				if down {
					done <- taken
					return
				}
				queue.Done(key)
				taken++
			}
		}()
	}
	add(keys, func(key string, _ int) { queue.Add(key) })
	queue.ShutDownWithDrain()
	check(done, count)
}

// prioritized is the queue that controllers built on controller-runtime get by default.
func prioritized(keys [][]string, count int) {
	queue := priorityqueue.New[string]("bench")
	done := make(chan int)
	var left sync.WaitGroup
	left.Add(count)
	for range consumers {
		go func() {
			taken := 0
			for {
				key, _, down := queue.GetWithPriority()
				if down {
					done <- taken
					return
				}
				queue.Done(key)
				taken++
				left.Done()
			}
		}()
	}
	add(keys, func(key string, n int) {
		priority := n % 3
		queue.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, key)
	})
	left.Wait()
	queue.ShutDown()
	check(done, count)
}

func add(keys [][]string, one func(string, int)) {
	var all sync.WaitGroup
	for _, mine := range keys {
		all.Go(func() {
			for n, key := range mine {
				one(key, n)
			}
		})
	}
	all.Wait()
}

func check(done chan int, count int) {
	taken := 0
	for range consumers {
		taken += <-done
	}
	if taken != count {
		fmt.Fprintf(os.Stderr, "took %d keys of %d\n", taken, count)
		os.Exit(1)
	}
}

func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
