package reclaim

import "fmt"

// Words is the reason in words for a person, to stand behind "because".
func (r Reason) Words() string {
	switch r {
	case ReasonUnreadable:
		return "it cannot be told who its owner is"
	case ReasonReserved:
		return "it is kept out of circulation by an operator"
	case ReasonNoPod:
		return "its owner is a container without a pod"
	case ReasonPodGone:
		return "its pod does not exist"
	case ReasonPodFinished:
		return "its pod has finished"
	case ReasonNodeGone:
		return "its pod is terminating and its node does not exist"
	case ReasonOutOfService:
		return "its pod is terminating and its node is out of service"
	case ReasonUnreachable:
		return "its pod is terminating and its node is unreachable"
	case ReasonTerminating:
		return "its pod is terminating and its node may still be at work"
	case ReasonShown:
		return "its pod shows it in its network status"
	case ReasonAnotherPod:
		return "its pod was replaced by another one of the same name"
	case ReasonPending:
		return "its pod has not started yet"
	case ReasonStatusMissing:
		return "its pod has no network status that could be read"
	case ReasonNotShown:
		return "its pod runs and does not show it in its network status"
	}
	return r.wordsOfHalf()
}

func (r Reason) wordsOfHalf() string {
	switch r {
	case ReasonUnfinished:
		return "its pod has not started and does not go on with it"
	case ReasonDuplicate:
		return "two pools record it"
	case ReasonDisputed:
		return "it is reserved for one owner and recorded for another"
	case ReasonRangeUnknown:
		return "it cannot be told which pool it belongs to"
	case ReasonUnknown:
		return "it is not known whether its pod lives"
	}
	return string(r)
}

// String is the action's name.
func (a Action) String() string {
	switch a {
	case Keep:
		return "keep"
	case Wait:
		return "wait"
	case Free:
		return "free"
	case Complete:
		return "complete"
	}
	return fmt.Sprintf("Action(%d)", int(a))
}
