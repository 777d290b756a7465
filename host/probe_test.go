package host

import (
	"encoding/binary"
	"strings"
)

// Operations of testdata/probe.wat.
const (
	opInput = iota
	opMeta
	opHeader
	opHeaders
	opConfig
	opEmit
	opEmitHeader
	opMetaInt // field, where its eight bytes go
	opReason
	opRetryAfter
	opLog
	opFdWrite
	opRandomGet
	opPollOneoff
	opArgsSizes
	opArgsGet
	opEnvironSizes
	opFdRead
	opFdstat
	opSchedYield
	opClockTime // id, where
	opProcExit
	opConst // sets the result
	opStore // address, word
	opSave  // address: the result so far goes there
	opGrow
	opSize
	opTableGrow
	opFill // address, byte, length
	opTrap
	opSpin
	opRecurse
	opCount // calls of this instance
)

const (
	probeSteps   = 140
	probeStrings = 4 + 32*probeSteps // where the strings of a script begin
	probeScratch = 128 << 10         // memory that no script covers
	probeMemory  = 256 << 10         // all of it
)

// script is an input for the probe.
type script struct {
	steps []uint32
	text  strings.Builder
}

func (s *script) do(op uint32, args ...uint32) *script {
	step := make([]uint32, 8)
	step[0] = op
	copy(step[1:], args)
	s.steps = append(s.steps, step...)
	return s
}

// str puts a string into the script and gives its address and length.
func (s *script) str(v string) (ptr, n uint32) {
	ptr = uint32(probeStrings + s.text.Len())
	s.text.WriteString(v)
	return ptr, uint32(len(v))
}

func (s *script) emit(subject, data string) *script {
	sp, sn := s.str(subject)
	dp, dn := s.str(data)
	return s.do(opEmit, sp, sn, dp, dn)
}

func (s *script) emitHeader(name, value string) *script {
	np, nn := s.str(name)
	vp, vn := s.str(value)
	return s.do(opEmitHeader, np, nn, vp, vn)
}

// show emits n bytes of the guest's memory.
func (s *script) show(ptr, n uint32) *script { return s.do(opEmit, 0, 0, ptr, n) }

// print writes text to stdout (1) or stderr (2).
func (s *script) print(fd uint32, text string) *script {
	p, n := s.str(text)
	return s.do(opStore, probeScratch, p).do(opStore, probeScratch+4, n).do(opFdWrite, fd, probeScratch, 1, probeScratch+8)
}

// append does what another script does; only one of them may have strings.
func (s *script) append(o *script) *script {
	s.steps = append(s.steps, o.steps...)
	s.text.WriteString(o.text.String())
	return s
}

func (s *script) ok() *script { return s.do(opConst, 0) }

func (s *script) bytes() []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(s.steps)/8))
	for _, w := range s.steps {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return append(append(b, make([]byte, probeStrings-len(b))...), s.text.String()...)
}

func (s *script) message() *Message { return message(string(s.bytes())) }
