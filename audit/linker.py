#!/usr/bin/env python3
"""What Mayfly's ledger gives away, alone and together with Apple's records: a program that tries to find out.

    linker.py                              simulates brokers of several sizes, attacks their ledgers, prints how often it succeeds
    linker.py --ledger DIR --pushes FILE   attacks a real log with a record of pushes (JSON as of the simulator's GET /pushes)

Python's standard library only. The attacker has

  the ledger   as it is published: of each ref the windows in which it was sealed, pushed and purged, its `until` and the cause of its
               purge. The order inside a window is that of random refs: it says nothing and is not looked at.
  Apple        of each push its exact time, the phone's token and the collapse id (the handle), which is one for all pushes to one
               side of one room.

and asks

  1. Which phone is a ref? A delivered push stands in the ledger in the window in which Apple took it. So a ref's pushes are a list of
     windows, and Apple's records, sorted by token and handle, hold the same list. All sides of rooms with one list are equally
     likely: the guess is the token that most of them share. Sides that are needed for one list are ruled out for others.
  2. Which two refs are one room's? They have the same `until`, and when the room ends or is closed both are purged in one window for one
     cause. Among several, the likeliest pairs go first: one sealed just as long before the end as the app lets rooms live, the other
     soon after it, pushes to both close together.
  3. Which two phones met? Both answers together. (To let one answer help in finding the other was tried; it gains a hundredth.)

Left out is what would help more: people who meet again and again, and a view of the network.
"""

import argparse
import itertools
import json
import math
import random
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

DAY, EPOCH = 86_400, 300


@dataclass(eq=False)
class Life:
    """What happened to one ref. Times in unix seconds: exact in the simulated world, starts of windows in the ledger."""

    ref: str
    sealed: float
    until: float
    purged: float = math.inf
    cause: str = ""
    delivered: list = field(default_factory=list)
    token: str = ""  # this and the next are the truth: looked at only to count successes
    room: int = -1

    def published(self, window):
        """As a ledger of this resolution tells it."""
        def start(time):
            return time if time == math.inf else time // window * window
        return Life(self.ref, start(self.sealed), math.ceil(self.until / EPOCH) * EPOCH, start(self.purged), self.cause,
                    [start(time) for time in self.delivered])


# The attack.


def link_phones(lives, pushes, window, slack):
    """Of each ref that was pushed: the sides of rooms in Apple's records that may be it, as (token, handle).

    `pushes`: (time, token, handle). `slack`: within how many seconds after Apple took a push its outcome is recorded.
    """
    sides, by_ends, refs = defaultdict(list), defaultdict(list), defaultdict(list)
    for time, token, handle in sorted(pushes):
        sides[token, handle].append(time)

    def places(time):
        """The windows in which an outcome of that moment may stand: close to a window's end also in the next."""
        return range(int(time // window * window), int(time + slack) + 1, window)
    for side, times in sides.items():
        for ends in itertools.product(places(times[0]), places(times[-1])):
            by_ends[len(times), *ends].append(side)
    for life in lives:
        if life.delivered:
            refs[tuple(sorted(life.delivered))].append(life.ref)
    candidates, settled = {}, set()
    for windows in refs:
        alike = by_ends[len(windows), windows[0], windows[-1]]
        candidates[windows] = {side for side in alike if all(start in places(time) for start, time in zip(windows, sides[side]))}
    while full := [windows for windows in refs if windows not in settled and len(candidates[windows]) == len(refs[windows])]:
        settled.update(full)
        needed = set().union(*(candidates[windows] for windows in full))
        for windows in refs.keys() - settled:
            candidates[windows] = candidates[windows] - needed
    return {ref: candidates[windows] for windows, named in refs.items() for ref in named}


def best_guess(candidates):
    """The token that most of the sides share, and with what likelihood it is the right one."""
    tokens = Counter(token for token, _ in sorted(candidates))
    token, count = tokens.most_common(1)[0] if tokens else (None, 0)
    return token, count / max(1, len(candidates))


def link_rooms(lives, window, room_lives):
    """Each ref's likeliest partner, from the ledger alone."""
    ended_together, ending_together, partner = defaultdict(list), defaultdict(list), {}
    for life in lives:
        if life.cause in ("expired", "room_closed"):
            ended_together[life.until, life.purged, life.cause].append(life)
        if life.cause != "replaced":
            ending_together[life.until].append(life)
    # Who is left after that may have a partner who withdrew its token, or none.
    left = ([life for life in group if life.ref not in partner] for group in ending_together.values())
    for group in itertools.chain(ended_together.values(), left):
        pairs = []
        for two in itertools.combinations(group, 2):
            creator, joiner = sorted(two, key=lambda life: life.sealed)
            pairs.append((likelihood(creator, joiner, window, room_lives), creator.ref, joiner.ref))
        for _, one, other in sorted(pairs, reverse=True):
            if one not in partner and other not in partner:
                partner[one], partner[other] = other, one
    return partner


def likelihood(creator, joiner, window, room_lives):
    """How well two refs that end together go together as one room's sides: a logarithm, good for comparisons only."""
    def may_create(life):
        return any(
            abs(life.sealed + length - life.purged) <= window if life.cause == "expired" and life.until - life.purged <= EPOCH + window
            else life.until - EPOCH - window < life.sealed + length <= life.until for length in room_lives)
    apart = joiner.sealed - creator.sealed
    score = -apart / 600 - (0 if may_create(creator) else 20) - (5 if may_create(joiner) and apart > EPOCH + window else 0)
    for time in creator.delivered:  # who comes too late to meet the other knocks back
        gap = min((abs(time - other) for other in joiner.delivered), default=math.inf)
        score += max(0, math.log(DAY / 1_800) - gap / 1_800)
    return score


# The simulated world.


def simulate(options, rooms_a_day, chance):
    """What happens at a broker, exactly: its refs' lives, what Apple records, and the span of time that counts.

    Before and after that span lie as many days as the longest room lives, so that it is as busy at its ends as in its middle.
    """
    def moment(start, end):
        """People are awake: most often at 20:00, least at 8:00 UTC."""
        while True:
            time = chance.uniform(start, end)
            if chance.random() * (1 + options.swing) < 1 + options.swing * math.cos(2 * math.pi * (time / DAY - 20 / 24)):
                return time

    def happenings(mean):
        """A Poisson process: a number of events at random times of a span of length 1."""
        time, count = chance.expovariate(mean), 0
        while time < 1:
            time, count = time + chance.expovariate(mean), count + 1
        return count

    margin = math.ceil(max(options.lives) / DAY)
    phones = range(max(2, round(rooms_a_day * options.phones)))
    lives, pushes, room = [], [], 0
    for day in range(2 * margin + options.days):
        for _ in range(happenings(rooms_a_day)):
            made, room = moment(day * DAY, (day + 1) * DAY), room + 1
            end = made + chance.choices(list(options.lives), list(options.lives.values()))[0]
            joined = made + chance.expovariate(1 / options.accept_after)
            accepted = chance.random() < options.accepted and joined < end
            closed = moment(joined, end) if accepted and chance.random() < options.closed else None
            knocks = [], []
            for _ in range(happenings(options.meetings) if accepted else 0):
                # One side comes and knocks at the other, who may come too late and knock back.
                first, time = chance.randrange(2), moment(joined, end)
                knocks[1 - first].append(time)
                if chance.random() < options.late:
                    knocks[first].append(time + 120 + chance.expovariate(1 / 1_800))
            for slot, phone in enumerate(chance.sample(phones, 2)[:1 + accepted]):
                if chance.random() >= options.tokens:
                    continue
                purged, cause = (closed, "room_closed") if closed else (end if accepted else min(end, made + DAY), "expired")
                if accepted and chance.random() < options.withdrawn:
                    purged, cause = chance.uniform(joined, purged), "deleted"
                life = Life(f"{room}/{slot}", joined if slot else made, end, purged, cause, [], f"phone {phone}", room)
                lives.append(life)
                for time in sorted(knocks[slot]):
                    if time < purged - 1:
                        at_apple = time + chance.uniform(0.02, 0.06)
                        pushes.append((at_apple, life.token, life.ref))
                        life.delivered.append(at_apple + chance.uniform(0.02, 0.06))
    return lives, pushes, (margin * DAY, (margin + options.days) * DAY)


def attack(lives, pushes, span, window, options):
    """How often each question about the refs sealed in `span` is answered rightly: {question: share}."""
    counted = [life for life in lives if span[0] <= life.sealed < span[1]]
    ends = {math.ceil(life.until / EPOCH) * EPOCH for life in counted}
    ledger = [life.published(window) for life in lives]
    guesses = {ref: best_guess(sides)[0] for ref, sides in link_phones(ledger, pushes, window, slack=0.1).items()}
    partners = link_rooms([life for life in ledger if life.until in ends], window, options.lives)
    by_room, answers = defaultdict(list), defaultdict(list)
    for life in lives:
        by_room[life.room].append(life)
    for life in counted:
        named = life.delivered and guesses[life.ref] == life.token
        if life.delivered:
            answers["phone"].append(named)
            answers["once" if len(life.delivered) == 1 else "often" if len(life.delivered) > 2 else "twice"].append(named)
        for other in by_room[life.room]:
            if other is not life:
                paired = partners.get(life.ref) == other.ref
                answers["room"].append(paired)
                if life.delivered and other.delivered:
                    answers["phones that met"].append(paired and named and guesses[other.ref] == other.token)
    sealed, purged = sorted(life.sealed for life in lives), sorted(life.purged for life in lives)
    rivals = sum(bisect_right(sealed, life.purged) - bisect_left(purged, life.sealed) - 1 for life in counted)
    shares = {question: sum(right) / len(right) for question, right in answers.items()}
    return shares | {"rivals": rivals / len(counted), "pushed": sum(bool(life.delivered) for life in counted) / len(counted)}


def print_table(options):
    columns = {"phone": "a pushed ref's phone", "once": "if pushed once", "often": "if three times or more",
               "room": "a room's two refs (ledger alone)", "phones that met": "both phones of a room"}
    print("| rooms a day | window |", " | ".join(columns.values()), "| blind guess |")
    print("|--:|--:|" + "--:|" * len(columns) + "--:|")
    pushed = []
    for rooms in options.rooms:
        worlds = [simulate(options, rooms, random.Random(f"{seed} {rooms}")) for seed in range(options.seeds)]
        for window in options.windows:
            tries = [attack(*world, window, options) for world in worlds]
            cells = []
            for question in columns:
                shares = sorted(100 * one[question] for one in tries if question in one)
                cells.append(f"{sum(shares) / len(shares):.0f} % ({shares[0]:.0f}–{shares[-1]:.0f})" if shares else "–")
            blind = sum(one["rivals"] for one in tries) / len(tries)
            print(f"| {rooms:,} | {window} s |", " | ".join(cells), f"| 1 in {blind:,.0f} |", flush=True)
        pushed += [one["pushed"] for one in tries]
    print(f"\nMean of {options.seeds} runs, in brackets the worst and the best. A blind guess takes any other ref of the same time.")
    print(f"{100 * sum(pushed) / len(pushed):.0f} % of the refs were pushed; Apple's records have nothing of the others.")


# A real log.


def read_ledger(folder):
    """The lives in a folder, and the longest window it was written with. Nothing is verified here."""
    def seconds(text):
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    folder, lives, window, entries = Path(folder), {}, 1, []
    size = int((folder / "checkpoint").read_text().split("\n")[1])
    for number in range(math.ceil(size / 256)):
        groups = f"{number:,}".split(",")  # 1,234,567 lies at x001/x234/567
        path = "/".join([f"x{int(group):03}" for group in groups[:-1]] + [f"{int(groups[-1]):03}"])
        rest = size - 256 * number
        data = (folder / f"tile/entries/{path}{f'.p/{rest}' if rest < 256 else ''}").read_bytes()
        while data:
            end = 2 + int.from_bytes(data[:2], "big")
            entries.append(json.loads(data[2:end]))
            data = data[end:]
    for entry in entries:
        at, ref = seconds(entry["at"]), entry.get("ref")
        if entry["op"] == "broker.started":
            window = max(window, entry["resolution"])
        elif entry["op"] == "token.sealed":
            lives[ref] = Life(ref, at, seconds(entry["until"]))
        elif entry["op"] == "push.delivered":
            lives[ref].delivered.append(at)
        elif entry["op"] == "token.purged":
            lives[ref].purged, lives[ref].cause = at, entry["cause"]
    return [life.published(window) for life in lives.values()], window


def print_links(options):
    lives, window = read_ledger(options.ledger)
    pushes = [(datetime.fromisoformat(push["at"].replace("Z", "+00:00")).timestamp(), push["token"],
               push["headers"].get("apns-collapse-id")) for push in json.loads(Path(options.pushes).read_text())]
    phones = link_phones(lives, pushes, window, options.slack)
    partners = link_rooms(lives, window, options.lives)
    print(f"{'ref':32}  {'phone':10}  {'likely':6}  the same room as")
    for life in sorted(lives, key=lambda life: (life.sealed, life.ref)):
        token, share = best_guess(phones.get(life.ref, ()))
        print(f"{life.ref}  {token[:8] + '…' if token else '-':10}  {f'{share:.0%}' if token else '-':6}  {partners.get(life.ref, '-')}")


def main():
    parser = argparse.ArgumentParser(description="What the ledger gives away, alone and together with Apple's records.")
    add = parser.add_argument
    add("--ledger", metavar="DIR", help="attack this log")
    add("--pushes", metavar="FILE", help="with these records")
    add("--slack", type=float, default=2, help="seconds from Apple's time of a push to the broker's (with --ledger; %(default)s)")
    add("--rooms", type=int, nargs="+", default=[10, 100, 1_000, 10_000], help="rooms a day (%(default)s)")
    add("--windows", type=int, nargs="+", default=[1, 60, 300, 3_600], help="resolutions in seconds (%(default)s)")
    add("--seeds", type=int, default=5, help="runs (%(default)s)")
    add("--days", type=int, default=2, help="days that count in each (%(default)s)")
    add("--lives", type=lambda text: {int(life): float(share) for life, share in (one.split(":") for one in text.split(","))},
        default={3_600: 0.4, 86_400: 0.5, 604_800: 0.1}, help="what rooms live, seconds:share,... (%(default)s)")
    add("--accepted", type=float, default=0.75, help="share of rooms that someone joins (%(default)s)")
    add("--accept-after", type=float, default=600, help="mean seconds until then (%(default)s)")
    add("--closed", type=float, default=0.4, help="share of those that are closed before they end (%(default)s)")
    add("--tokens", type=float, default=0.9, help="share of sides that give a token (%(default)s)")
    add("--withdrawn", type=float, default=0.05, help="share of tokens that are withdrawn (%(default)s)")
    add("--meetings", type=float, default=3, help="mean number of knocks in a joined room's life (%(default)s)")
    add("--late", type=float, default=0.4, help="share of them that are answered too late, by a knock back (%(default)s)")
    add("--phones", type=float, default=2, help="phones for each room a day: 2 puts a phone into one room a day (%(default)s)")
    add("--swing", type=float, default=0.8, help="how much busier the evening is than the mean, 0 to 1 (%(default)s)")
    options = parser.parse_args()
    if bool(options.ledger) != bool(options.pushes):
        parser.error("--ledger and --pushes go together")
    print_links(options) if options.ledger else print_table(options)


main()
