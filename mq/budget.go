package mq

// Shares are parts of a store, in bytes. Together they are not more than it.
type Shares struct {
	Input  int64 // of the stream MQRUN
	Output int64 // of each stream MQRUN_<PIPELINE>; 0 without pipelines
	DLQ    int64 // of the stream MQRUN_DLQ
	KV     int64 // of all buckets together
}

// Budget divides a store of maxBytes: a tenth for dead letters and a tenth for
// the buckets, so that both go on when the input is full. What is left goes to
// the input, or, with pipelines that have streams of their own, one half to the
// input and the other to those streams alike.
func Budget(maxBytes int64, pipelines int) Shares {
	s := Shares{DLQ: maxBytes / 10, KV: maxBytes / 10}
	rest := maxBytes - s.DLQ - s.KV
	if pipelines <= 0 {
		s.Input = rest
		return s
	}
	s.Input = rest / 2
	s.Output = (rest - s.Input) / int64(pipelines)
	return s
}
