// Command pause waits for a signal and reaps orphans, as the sandbox container of a pod and as the first
// process of a node. As the program of a pod it does one thing:
//
//	pause                 wait for SIGTERM
//	pause sleep SECONDS   the same, but end with 0 after this time
//	pause exit CODE       end at once
//	pause ignore          ignore SIGTERM
//	pause write FILE..    create these files, then wait for SIGTERM
//	pause result FILE SECONDS CODE
//	                      create the file, and end with this code after this time, or with 143 after SIGTERM
//	pause collector NAME  answer DNS for this name with the own address, and end with 0 once an HTTP/2 client connects to
//	                      port 4317, as a collector of traces is asked
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGINT)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	var over <-chan time.Time
	code, interrupted := 0, 0
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "sleep":
			over = time.After(seconds(only()))
		case "exit":
			os.Exit(number(only()))
		case "ignore":
			signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		case "write":
			for _, file := range os.Args[2:] {
				write(file)
			}
		case "result":
			if len(os.Args) != 5 {
				fail(fmt.Errorf("result needs a file and two numbers"))
			}
			write(os.Args[2])
			over = time.After(seconds(os.Args[3]))
			code, interrupted = number(os.Args[4]), 143
		case "collector":
			if len(os.Args) != 3 {
				fail(fmt.Errorf("collector needs a name"))
			}
			collect(os.Args[2])
		default:
			fail(fmt.Errorf("unknown command %q", os.Args[1]))
		}
	}
	for {
		select {
		case <-ends:
			os.Exit(interrupted)
		case <-over:
			os.Exit(code)
		case <-children:
			reap()
		}
	}
}

// only is the only argument of a command.
func only() string {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("%s needs one number", os.Args[1]))
	}
	return os.Args[2]
}

func number(argument string) int {
	number, err := strconv.Atoi(argument)
	if err != nil {
		fail(err)
	}
	return number
}

func seconds(argument string) time.Duration {
	return time.Duration(number(argument)) * time.Second
}

func write(file string) {
	if err := os.WriteFile(file, []byte("left by a pod\n"), 0o644); err != nil {
		fail(err)
	}
}

func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err != nil || pid <= 0 {
			return
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
