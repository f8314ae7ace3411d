"""Runs an experiment: trials that have a record are skipped, the others run one after the other."""

from collections.abc import Callable
from pathlib import Path
from statistics import mean
from time import perf_counter

from paper.catalogue import find_experiment
from paper.harness.experiment import Outcome
from paper.harness.formatting import format_time
from paper.harness.locks import locked
from paper.harness.machine import describe_machine, forget_peak_memory, peak_memory_mb, versions
from paper.harness.mixers import check_rows
from paper.harness.records import Record, Records
from paper.harness.trial import Options, Trial, TrialContext
from paper.report.section import make_section, write_section
from tnn.training.figures import new_figure

Log = Callable[[str], None]


def reproduce(name: str, options: Options, *, data: Path, out: Path, models: Path, log: Log = print) -> Outcome:
    """Run the missing trials of an experiment and write its records, table and figure to `out`/SCALE/NAME.*.

    >>> from pathlib import Path
    >>> from paper.running import reproduce
    >>> from paper.harness.trial import Options
    >>> places = {"data": Path("data"), "out": Path("results"), "models": Path("runs")}
    >>> reproduce("alm", Options(methods=("tnn",)), **places)  # doctest: +SKIP
    """
    experiment = find_experiment(name)
    check_rows(experiment, options.methods or ())
    new_figure(height=1)  # without matplotlib, fail here and not after the work
    records = Records(out / options.scale)
    context = TrialContext(data, models / options.scale, records)
    trials = list({trial.key: trial for trial in experiment.plan(options)}.values())  # each once
    missing = [trial for trial in trials if records.find(trial) is None]
    log(f"{name} at {options.scale} scale: {len(trials)} trials, {len(trials) - len(missing)} of them measured")
    for number, trial in enumerate(missing, start=1):
        log(f"[{number}/{len(missing)}] {trial.title}")
        record = _run_once(trial, context, log)
        log(f"    {_summary(record)}{_remaining(missing[number:], trials, records)}")
    section = make_section(experiment, options, records)
    write_section(section, records.folder)
    outcome = section.outcome
    log("\n\n".join(f"{table.title}\n\n{table.to_markdown()}" for table in outcome.tables))
    for claim in outcome.claims:
        log(f"{claim.verdict}: {claim.text} ({claim.evidence})")
    return outcome


def _run_once(trial: Trial, context: TrialContext, log: Log) -> Record:
    """Unless another process has run it: processes may share folders, and experiments share trials."""
    with locked(trial, context, log):
        record = context.records.find(trial)
        if record is None:
            record = run_trial(trial, context)
            context.records.add(record)
        return record


def run_trial(trial: Trial, context: TrialContext) -> Record:
    """Measure, with time and memory."""
    forget_peak_memory()
    start = perf_counter()
    metrics = trial.work(context)
    return Record(
        trial.experiment,
        trial.row,
        trial.part,
        trial.seed,
        trial.settings,
        metrics,
        seconds=round(perf_counter() - start, 1),
        peak_memory_mb=round(peak_memory_mb(), 1),
        machine=describe_machine(),
        versions=versions(),
    )


def _summary(record: Record) -> str:
    numbers = [
        f"{name.replace('_', ' ')} {value:.4g}" for name, value in record.metrics.items() if isinstance(value, float)
    ]
    failed = [str(record.metrics["failed"])] if "failed" in record.metrics else []
    return ", ".join([*failed, *numbers, format_time(record.seconds), f"{record.peak_memory_mb:,.0f} MB"])


def _remaining(missing: list[Trial], trials: list[Trial], records: Records) -> str:
    """An estimate from trials of the same row and part, if there are any, or from all."""
    if not missing:
        return ""
    paces = {t.key: (t, record.seconds / t.cost) for t in trials if (record := records.find(t)) is not None}
    expected = sum(trial.cost * _pace(trial, list(paces.values())) for trial in missing)
    return f"; about {format_time(expected)} for the {len(missing)} left"


def _pace(trial: Trial, known: list[tuple[Trial, float]]) -> float:
    """Seconds per unit of cost."""
    same_part = [(t, pace) for t, pace in known if t.part == trial.part]
    same_row = [(t, pace) for t, pace in same_part if t.row == trial.row]
    return mean(pace for _, pace in same_row or same_part or known)
