// The rules for the sequence of entries, without sumdb.
package main

import (
	"bytes"
	"container/heap"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const grace, epochSpan, jobSpan, most = 120, 300, 190, 1<<53 - 1

// Keys and patterns of each op. "token.purged" has two forms.
var forms = map[string][]string{
	"broker.started":  {"at=T binary=D node=N op=* policy=D resolution=1-60 version=N"},
	"broker.stopped":  {"at=T node=N op=*"},
	"policy.loaded":   {"at=T name=N op=* policy=D"},
	"keys.generated":  {"at=T generation=0-4294967295 op=*"},
	"keys.ratcheted":  {"at=T epoch=C op=* swept=C"},
	"token.opened":    {"at=T id=I job=I op=* template=N"},
	"push.delivered":  {"at=T job=I op=* status=0-999"},
	"push.failed":     {"at=T job=I op=* reason=R status=0-999"},
	"token.sealed":    {"at=T id=I op=* until=T"},
	"token.purged":    {"at=T cause=|expired| id=I op=* until=T", "at=T cause=|ended|policy| id=I op=*"},
	"bucket.closed":   {"at=T ended=C expired=C op=* sealed=C until=T"},
	"request.refused": {"at=T cause=|malformed|unauthorized|forbidden|conflict|throttled|unavailable|other|not_found|too_large| count=0-4294967295 op=*"},
	"ledger.opened":   {"at=T jobs=C op=* previous=N root=D size=C"},
	"bucket.carried":  {"at=T live=1-9007199254740991 op=* until=T"},
	"ledger.closed":   {"at=T next=N op=*"},
}

const reasons = "|BadCollapseId|BadDeviceToken|BadExpirationDate|BadMessageId|BadPriority|BadTopic|DeviceTokenNotForTopic|DuplicateHeaders|" +
	"IdleTimeout|InvalidPushType|MissingDeviceToken|MissingTopic|PayloadEmpty|TopicDisallowed|BadCertificate|BadCertificateEnvironment|" +
	"BadEnvironmentKeyIdInToken|BadEnvironmentKeyInToken|ExpiredProviderToken|Forbidden|InvalidProviderToken|MissingProviderToken|" +
	"UnrelatedKeyIdInToken|BadPath|MethodNotAllowed|ExpiredToken|Unregistered|PayloadTooLarge|TooManyProviderTokenUpdates|TooManyRequests|" +
	"InternalServerError|ServiceUnavailable|Shutdown|unsent|unreachable|unknown|other|"

var patterns = map[string]*regexp.Regexp{
	"T": regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$`),
	"D": regexp.MustCompile(`^[0-9a-f]{64}$`),
	"I": regexp.MustCompile(`^[0-9a-f]{32}$`),
	"N": regexp.MustCompile(`^[!#-\[\]-~]{1,128}$`),
}

// A JSON object whose numbers keep their spelling.
func object(data []byte) (found map[string]any, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	ok = utf8.Valid(data) && decoder.Decode(&found) == nil && found != nil
	_, err := decoder.Token()
	return found, ok && err == io.EOF
}

// A canonical whole number, or -1.
func whole(value any) int64 {
	text, _ := value.(json.Number)
	number, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || strconv.FormatInt(number, 10) != string(text) || number > most {
		return -1
	}
	return number
}

func fits(value any, form string) bool {
	text, isText := value.(string)
	if form == "T" {
		moment, err := time.Parse("2006-01-02T15:04:05Z", text)
		return err == nil && patterns["T"].MatchString(text) && moment.Unix() >= 0
	} else if form == "*" {
		return isText
	} else if pattern := patterns[form]; pattern != nil {
		return pattern.MatchString(text)
	} else if form == "R" {
		form = reasons
	} else if form == "C" {
		form = "0-9007199254740991"
	}
	if form[0] == '|' {
		return isText && !strings.Contains(text, "|") && strings.Contains(form, "|"+text+"|")
	}
	var least, greatest int64
	fmt.Sscanf(form, "%d-%d", &least, &greatest)
	return whole(value) >= least && whole(value) <= greatest
}

type entry map[string]any

func (e entry) text(key string) string { text, _ := e[key].(string); return text }
func (e entry) time(key string) int64 {
	moment, _ := time.Parse("2006-01-02T15:04:05Z", e.text(key))
	return moment.Unix()
}

func parse(raw []byte) (entry, bool) {
	e, ok := object(raw)
	if !ok {
		return nil, false
	}
	var again bytes.Buffer
	encoder := json.NewEncoder(&again)
	encoder.SetEscapeHTML(false)
	encoder.Encode(e)
	op, _ := e["op"].(string)
	for _, form := range forms[op] {
		good, fields := true, strings.Fields(form)
		for _, field := range fields {
			key, kind, _ := strings.Cut(field, "=")
			good = good && fits(e[key], kind)
		}
		if good && len(fields) == len(e) {
			return e, bytes.Equal(append(raw[:len(raw):len(raw)], '\n'), again.Bytes())
		}
	}
	return nil, false
}

type policy struct {
	templates        map[string]any
	longest          int64
	hour, day, seals int64
}

func readPolicy(folder, digest string, timed bool) (p policy, code string) {
	data, err := readFile(filepath.Join(folder, "policies", digest+".json"))
	if err == errTooLong {
		return p, "unreadable"
	} else if err != nil {
		return p, "missing"
	}
	text, ok := object(data)
	ok = ok && len(data) <= 1<<20 && isStrict(data)
	part := func(name string) map[string]any {
		found, isObject := text[name].(map[string]any)
		_, there := text[name]
		ok = ok && (isObject || !there)
		return found
	}
	limits, timing := part("limits"), map[string]any{"hourSeconds": json.Number("3600"), "daySeconds": json.Number("86400"), "batchSeals": json.Number("64")}
	if _, there := text["ledger"]; there && timed {
		timing = part("ledger")
	}
	p = policy{part("templates"), 0, whole(timing["hourSeconds"]), whole(timing["daySeconds"]), whole(timing["batchSeals"])}
	for _, name := range []string{"roomLifeSeconds", "deviceLifeSeconds", "activityLifeSeconds", "sessionLifeSeconds"} {
		if life, there := limits[name]; there {
			if name == "roomLifeSeconds" {
				bounds, _ := life.(map[string]any)
				life = bounds["max"]
			}
			ok = ok && whole(life) > 0
			p.longest = max(p.longest, whole(life))
		}
	}
	ok = ok && p.hour >= 1 && p.hour <= 3600 && p.day >= p.hour && p.day <= 86400 && p.day%p.hour == 0 && p.seals >= 1 && p.seals <= 10000
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != digest || !ok {
		return p, "damaged"
	}
	return p, ""
}

type bucket struct{ sealed, carried, expired int64 }
type gap struct{ begin, end int64 }
type batch struct{ seals, regular, rotation, purges int64 }
type job struct {
	name string
	at   int64
}

// The ends of buckets; the soonest is first.
type ends []int64

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i] < e[j] }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(end any)      { *e = append(*e, end.(int64)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

type story struct {
	folder                                              string
	timing                                              policy
	inForce, before                                     []policy
	first, at, window, longest, lastClosed, lastCarried int64
	early, booked, live, carriedJobs                    int64
	destroyed, sweepDue, destroyedBefore, sweepBefore   int64
	swept, rank                                         int64
	key, op                                             string
	started, ending, closed                             bool
	buckets                                             map[int64]*bucket
	ends                                                ends             // Those of all open buckets, and of some that are closed.
	open                                                map[string]int64 // When each open job was opened.
	jobs                                                []job            // In the order of time. Some of them are closed, but not the first.
	gaps                                                []gap
	days                                                map[int64]int64
	batch                                               *batch
}

// Entries before and after a gap may be a window later than their time.
func (s *story) jobLate(opened int64) bool {
	if n := len(s.gaps); n > 0 && s.gaps[n-1].end > opened {
		return s.late(opened, jobSpan+2*s.window)
	}
	return s.late(opened, jobSpan)
}

func (s *story) late(due, grace int64) bool {
	for i := len(s.gaps) - 1; i >= 0 && s.gaps[i].end > due; i-- {
		grace += max(0, min(s.gaps[i].end, s.at)-max(s.gaps[i].begin, due))
	}
	return s.at > due+grace+s.window
}

// The first midnight after the last closed one that can't be skipped.
func (s *story) midnight() int64 {
	day := s.timing.day
	due := s.lastClosed + day
search:
	for s.buckets[due] == nil {
		for i := len(s.gaps) - 1; i >= 0 && s.gaps[i].end+s.window >= due; i-- {
			if g := s.gaps[i]; g.begin-s.window <= due {
				due = min((g.end+s.window)/day*day+day, s.soonest())
				continue search
			}
		}
		break
	}
	return due
}

// The end of the open bucket that ends first.
func (s *story) soonest() int64 {
	for len(s.ends) > 0 && s.buckets[s.ends[0]] == nil {
		heap.Pop(&s.ends)
	}
	if len(s.ends) == 0 {
		return most
	}
	return s.ends[0]
}

func (s *story) endBatch() string {
	b, hour := *s.batch, s.timing.hour
	s.batch = nil
	if b.regular == 0 && b.seals+b.purges > 0 && b.seals < s.timing.seals {
		return "small_batch"
	} else if (b.regular > 0 || b.seals+b.purges > 0) && hour > grace+s.window && s.late(s.at/hour*hour, grace) {
		return "batch_late"
	} else if b.rotation == 0 && s.early-s.booked > s.live {
		return "overbooked"
	}
	return ""
}

func (s *story) endWindow() string {
	slow := func(due int64) bool {
		for i := len(s.gaps) - 1; i >= 0 && s.gaps[i].end >= due; i-- {
			if s.gaps[i].begin <= due+grace {
				return s.late(due, grace+epochSpan)
			}
		}
		return s.late(due, grace)
	}
	if slow((s.destroyedBefore + 4) * epochSpan) {
		return "ratchet_late"
	} else if slow(s.sweepBefore) {
		return "swept_late"
	} else if len(s.jobs) > 0 && s.jobLate(s.jobs[0].at) || s.carriedJobs > 0 && s.jobLate(s.first) {
		return "outcome_late"
	} else if s.started {
		if due := s.midnight(); due <= s.at && s.late(due, grace) {
			return "midnight_missing"
		}
	}
	return ""
}

func (s *story) addGap(g gap) string {
	s.gaps = append(s.gaps, g)
	for begin := g.begin; begin < g.end; {
		day := begin / 86400
		end := min(g.end, (day+1)*86400)
		if s.days[day] += end - begin; s.days[day] > 3600 {
			return "gaps"
		}
		begin = end
	}
	return ""
}

func (s *story) start(e entry) string {
	p, code := readPolicy(s.folder, e.text("policy"), true)
	resolution := whole(e["resolution"])
	if code != "" {
		return code
	} else if p.hour%resolution != 0 || s.started && (p.hour != s.timing.hour || p.day != s.timing.day || p.seals != s.timing.seals) {
		return "policy_changed"
	}
	if !s.started {
		s.lastClosed = s.first / p.day * p.day
		for until := range s.buckets {
			if until%p.day != 0 {
				return "carry"
			}
			s.lastClosed = min(s.lastClosed, until-p.day)
		}
	}
	s.before = append(s.before, s.inForce...)
	s.inForce, s.longest, s.window, s.timing, s.started = []policy{p}, max(s.longest, p.longest), resolution, p, true
	return ""
}

var ranks = map[string]int64{"token.opened": 1, "push.delivered": 2, "push.failed": 2, "token.sealed": 3, "token.purged": 4, "bucket.closed": 5, "ledger.closed": 6}

// Judges the next entry. Returns the code of the rule it breaks.
func (s *story) tell(index int, raw []byte) string {
	if s.closed {
		return "after_closed"
	}
	e, ok := parse(raw)
	if !ok {
		return "entry"
	}
	op, at, rank := e.text("op"), e.time("at"), ranks[e.text("op")]
	if index > 0 && at < s.at {
		return "time"
	}
	if s.batch != nil && (at > s.at || rank < 3 || rank > 5) {
		if code := s.endBatch(); code != "" {
			return code
		}
	}
	if index == 0 {
		s.first, s.destroyed, s.sweepDue = at, max(at/epochSpan, 2)-2, (at/epochSpan+2)*epochSpan
	} else if at > s.at {
		if code := s.endWindow(); code != "" {
			return code
		}
	}
	if index == 0 || at > s.at {
		isStart, resolution := op == "broker.started", whole(e["resolution"])
		if !(s.window > 0 && at%s.window == 0 || isStart && at%resolution == 0 || s.window == 0 && !isStart) {
			return "time"
		} else if begin := s.at + s.window; index > 0 && isStart && at-begin >= 60 {
			if code := s.addGap(gap{begin, at}); code != "" {
				return code
			}
		}
		s.at, s.destroyedBefore, s.sweepBefore, s.rank, s.key, s.before = at, s.destroyed, s.sweepDue, 0, "", nil
	}
	follows := s.op == "ledger.opened" || s.op == "bucket.carried"
	if op == "ledger.opened" && index > 0 || op == "bucket.carried" && (!follows || len(s.buckets) > 0 && e.time("until") <= s.lastCarried) {
		return "carry"
	} else if !s.started && op != "broker.started" && op != "ledger.opened" && op != "bucket.carried" {
		return "entry"
	}
	key := map[int64]string{1: e.text("id"), 2: e.text("job"), 3: e.text("id"), 4: e.text("id"), 5: e.text("until")}[rank]
	if rank > 0 && (rank < s.rank || rank == s.rank && key <= s.key) {
		return "entry"
	}
	s.rank, s.key, s.op = rank, key, op
	if s.ending && op != "bucket.closed" && op != "ledger.closed" {
		return "unbalanced"
	}
	if rank >= 3 && rank <= 5 {
		if s.batch == nil {
			s.batch = &batch{}
		}
		if _, there := e["until"]; there && (e.time("until")%s.timing.day != 0 || e.time("until") <= s.lastClosed) {
			return "bucket_unknown"
		}
	}
	return s.judge(op, at, e)
}

func (s *story) judge(op string, at int64, e entry) string {
	until, b := int64(0), &bucket{}
	if _, there := e["until"]; there {
		until = e.time("until")
	}
	if known := s.buckets[until]; known != nil {
		b = known
	}
	switch op {
	case "broker.started":
		return s.start(e)
	case "policy.loaded":
		p, code := readPolicy(s.folder, e.text("policy"), false)
		s.inForce, s.longest = append(s.inForce, p), max(s.longest, p.longest)
		return code
	case "keys.ratcheted":
		epoch, swept := whole(e["epoch"]), whole(e["swept"])
		if epoch >= (at+s.window)/epochSpan {
			return "ratchet_early"
		} else if swept > (at+s.window)/epochSpan || swept < s.swept {
			return "swept_early"
		}
		s.destroyed, s.swept, s.sweepDue = max(s.destroyed, epoch), swept, max(swept+2, at/epochSpan+1)*epochSpan
		if s.late((swept+1)*epochSpan, grace) {
			return "swept_late"
		}
	case "token.opened":
		if _, isOpen := s.open[e.text("job")]; isOpen {
			return "job_twice"
		}
		s.open[e.text("job")] = at
		s.jobs = append(s.jobs, job{e.text("job"), at})
		for _, p := range append(append([]policy{}, s.inForce...), s.before...) {
			if _, there := p.templates[e.text("template")]; there {
				return ""
			}
		}
		return "template_unknown"
	case "push.delivered", "push.failed":
		if opened, isOpen := s.open[e.text("job")]; isOpen {
			delete(s.open, e.text("job"))
			for len(s.jobs) > 0 {
				if opened, isOpen := s.open[s.jobs[0].name]; isOpen && opened == s.jobs[0].at {
					break
				}
				s.jobs = s.jobs[1:]
			}
			if s.jobLate(opened) {
				return "outcome_late"
			}
			return ""
		}
		if s.carriedJobs == 0 || s.jobLate(s.first) {
			return "job_unknown"
		}
		s.carriedJobs--
	case "token.sealed":
		if day := s.timing.day; until > (at+s.window+s.longest)/day*day+day {
			return "life_too_long"
		}
		if s.buckets[until] == nil {
			heap.Push(&s.ends, until)
		}
		s.buckets[until] = b
		b.sealed++
		s.live++
		s.batch.seals++
	case "token.purged":
		s.batch.purges++
		if until == 0 {
			s.early++
		} else if until-s.timing.day > at+s.window {
			return "purged_early"
		} else if b.sealed+b.carried <= b.expired {
			return "unbalanced"
		} else {
			b.expired++
			s.live--
		}
	case "bucket.closed":
		ended, rotation := whole(e["ended"]), until > at
		rest := b.sealed + b.carried - b.expired - ended
		if b.sealed != whole(e["sealed"]) || b.expired != whole(e["expired"]) {
			return "unbalanced"
		}
		if s.booked += ended; s.booked > s.early {
			return "overbooked"
		} else if rest < 0 || rest > 0 && !rotation {
			return "unbalanced"
		}
		if rotation {
			s.ending = true
			s.batch.rotation++
		} else if s.midnight() < until {
			return "midnight_missing"
		} else if s.late(until, grace) {
			return "batch_late"
		} else {
			s.lastClosed = until
			s.batch.regular++
		}
		delete(s.buckets, until)
		s.live -= b.sealed + b.carried - b.expired
	case "ledger.closed":
		if len(s.buckets) > 0 {
			return "unbalanced"
		} else if s.booked < s.early {
			return "overbooked"
		}
		s.closed, s.ending = true, false
	case "ledger.opened":
		s.carriedJobs = whole(e["jobs"])
	case "bucket.carried":
		s.lastCarried, s.buckets[until] = until, &bucket{carried: whole(e["live"])}
		heap.Push(&s.ends, until)
		if s.live += whole(e["live"]); s.live > most {
			return "carry"
		}
	}
	return ""
}

func (s *story) end() string {
	if s.batch != nil && s.op == "bucket.closed" {
		if code := s.endBatch(); code != "" {
			return code
		}
	}
	if s.ending {
		return "unbalanced"
	}
	return s.endWindow()
}

// The code of the first rule that the entries break, and where.
func judgeStory(folder string, entries [][]byte) error {
	s := story{folder: folder, buckets: map[int64]*bucket{}, open: map[string]int64{}, days: map[int64]int64{}}
	for i, raw := range entries {
		if code := s.tell(i, raw); code != "" {
			return broken{code, fmt.Sprintf("entry %d: %.300q", i, raw)}
		}
	}
	if len(entries) == 0 {
		return nil
	} else if code := s.end(); code != "" {
		return broken{code, "at the end"}
	}
	return nil
}

type broken struct{ code, what string }

func (b broken) Error() string { return b.code + " " + b.what }
