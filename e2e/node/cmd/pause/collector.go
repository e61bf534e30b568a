package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

// What every client of HTTP/2 sends first.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// collect serves DNS and waits for a client, both beside the caller.
func collect(name string) {
	queries, err := net.ListenPacket("udp4", ":53")
	if err != nil {
		fail(err)
	}
	clients, err := net.Listen("tcp4", ":4317")
	if err != nil {
		fail(err)
	}
	go resolve(queries, encoded(name))
	go func() {
		for {
			client, err := clients.Accept()
			if err != nil {
				fail(err)
			}
			first := make([]byte, len(preface))
			if _, err := io.ReadFull(client, first); err == nil && string(first) == preface {
				fmt.Println("a client of HTTP/2 has connected")
				os.Exit(0)
			}
			client.Close()
		}
	}()
}

// encoded is a name as DNS messages contain it.
func encoded(name string) []byte {
	var labels []byte
	for _, label := range strings.Split(strings.TrimSuffix(name, "."), ".") {
		labels = append(append(labels, byte(len(label))), label...)
	}
	return append(labels, 0)
}

// resolve answers queries: an address of this machine for the name, and that no other name exists.
func resolve(queries net.PacketConn, name []byte) {
	message := make([]byte, 1500)
	for {
		length, client, err := queries.ReadFrom(message)
		if err != nil {
			fail(err)
		}
		if answer := answer(message[:length], name, own()); answer != nil {
			queries.WriteTo(answer, client)
		}
	}
}

// answer is the response to a query of one question, and nil to anything else.
func answer(query, name []byte, address net.IP) []byte {
	const header, inet, typeA = 12, 1, 1
	if len(query) < header || binary.BigEndian.Uint16(query[4:]) != 1 {
		return nil
	}
	end := bytes.IndexByte(query[header:], 0)
	if end < 0 || len(query) < header+end+5 {
		return nil
	}
	asked := query[header : header+end+1]
	kind := binary.BigEndian.Uint16(query[header+end+1:])
	question := query[header : header+end+5]
	response := append([]byte{}, query[:2]...)
	known := strings.EqualFold(string(asked), string(name))
	flags, answers := uint16(0x8580), uint16(0)
	switch {
	case !known:
		flags |= 3
	case kind == typeA:
		answers = 1
	}
	for _, field := range []uint16{flags, 1, answers, 0, 0} {
		response = binary.BigEndian.AppendUint16(response, field)
	}
	response = append(response, question...)
	if answers == 1 {
		// A pointer to the question's name, type, class, seconds to live, length.
		response = append(response, 0xc0, header, 0, typeA, 0, inet, 0, 0, 0, 60, 0, 4)
		response = append(response, address.To4()...)
	}
	return response
}

// own is the pod's address.
func own() net.IP {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		fail(err)
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && !network.IP.IsLoopback() && network.IP.To4() != nil {
			return network.IP
		}
	}
	fail(fmt.Errorf("no address"))
	return nil
}
