"""headcount on the command line: reads arguments, calls one verb, prints. No arithmetic here."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.errors import HeadcountError, InputError
from headcount.options import (
    Chart,
    GpuName,
    Gpus,
    Html,
    Json,
    Markdown,
    NoColor,
    Observed,
    Price,
    Sets,
    Units,
)

if TYPE_CHECKING:
    from rich.console import Console

    from headcount.job.load import Spec
    from headcount.ledger.predicted import Plan
    from headcount.plan.scene import Scene

app = typer.Typer(
    name="headcount",
    help="Plan, run and measure LLM post-training: who sits in GPU memory, how many GPUs, how long, at what cost.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _unit(name: str) -> str:
    units = {"gib": "GiB", "gb": "GB", "both": "both"}
    if name.lower() not in units:
        raise InputError.one("--units", f"{name!r} is none of gib, gb, both", "--units gib")
    return units[name.lower()]


def _console(*, no_color: bool) -> Console:
    from rich.console import Console

    # A pipe has no width of its own: wide enough that nothing is folded.
    stated = os.environ.get("COLUMNS", "")
    width = None if sys.stdout.isatty() or (stated.isdigit() and int(stated)) else 140
    return Console(no_color=no_color or None, width=width, highlight=False, markup=False)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=1))


def _overrides(sets: list[str] | None, *, gpu: str | None, price: float | None) -> list[str]:
    extra = [f"--gpu hardware.gpu={json.dumps(gpu)}"] if gpu is not None else []
    extra += [f"--price cost.price_per_gpu_hour={price}"] if price is not None else []
    return [*(sets or []), *extra]


def _seen(observed: str | None) -> list[str]:
    """`decode_tokens_per_s=9000,scope=aggregate` or a TOML file of such keys, as overrides of `[observed]`."""
    if observed is None:
        return []
    pairs = observed.split(",")
    if "=" not in observed:
        from headcount.job.load import read_table

        pairs = [f"{key}={json.dumps(value)}" for key, value in read_table(Path(observed)).items()]
    keys = [pair.partition("=")[0].strip() for pair in pairs]
    return [f"--observed {key} observed.{pair.strip()}" for key, pair in zip(keys, pairs, strict=True)]


def _planned(spec: Spec, gpus: int | None) -> Plan:
    """The plan at the stated count, else at the fewest GPUs."""
    from headcount.plan.planner import fewest, plan

    if gpus or spec.gpus:
        return plan(spec.build(gpus=gpus))
    found = fewest(spec)
    if found.plan is None:
        raise InputError.one(spec.where, found.why_not, "see the fixes of `headcount plan --gpus N`")
    return found.plan


@app.command(
    epilog="Example: headcount compare --model Qwen/Qwen2.5-7B-Instruct --gpu h100-sxm --set policy.tuning='\"lora\"'"
)
def compare(
    model: Annotated[str, typer.Option("--model", help="Hub id, folder, config.json, or a bare size such as 7b.")],
    gpu: Annotated[str, typer.Option("--gpu", help="Kind of card, e.g. h100-sxm (headcount facts gpus).")],
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=1, max=65536, help="The common count of the second table.")
    ] = None,
    reward_retrains: Annotated[
        int, typer.Option("--reward-retrains", min=0, max=1000, help="Reward model and run again, k times.")
    ] = 0,
    sets: Sets = None,
    price: Price = None,
    chart: Chart = None,
    html: Html = None,
    markdown: Markdown = False,
    as_json: Json = False,
    units: Units = "gib",
    no_color: NoColor = False,
) -> None:
    """PPO, GRPO, DPO, reward model and SFT side by side: who is resident, bytes, fewest GPUs, hours, money."""
    from headcount.plan.as_json import comparison_json
    from headcount.plan.compare import compare as compare_verb

    unit = _unit(units)
    for each in sets or ():
        if each.split("=")[0].strip() == "algorithm":
            what = "compare plans every algorithm side by side, so this changes nothing"
            raise InputError.one("--set algorithm", what, "headcount plan JOB --set algorithm=…")
    shared = {"policy": {"model": model}, "hardware": {"gpu": gpu}}
    asked = [f"--model policy.model={json.dumps(model)}", *_overrides(sets, gpu=gpu, price=price)]
    compared = compare_verb(shared, gpus=gpus, reward_retrains=reward_retrains, overrides=asked)
    _draw(chart, lambda: _charts().comparison_scene(compared, unit=unit))
    _write_page(html, lambda: _pages().comparison_page(compared, unit=unit))
    if as_json:
        _print_json(comparison_json(compared))
    elif markdown:
        from headcount.plan.markdown import comparison_markdown

        typer.echo(comparison_markdown(compared, unit=unit), nl=False)
    else:
        from headcount.plan.compare_view import comparison_view

        console = _console(no_color=no_color)
        console.print(comparison_view(compared, console, unit=unit))
    if not any(each.smallest for each in compared.compared):
        raise typer.Exit(4)


@app.command(epilog="Example: headcount plan configs/plan/grpo-7b-checker.toml --set layout.root_split=true --json")
def plan(
    job: Annotated[Path, typer.Argument(help="Job file (TOML); configs/plan has one for each algorithm.")],
    gpus: Annotated[
        str | None,
        typer.Option(
            "--gpus",
            help="A count, or several: 8..1024 doubles, 8,24,96 as written; left out: the fewest that fit.",
        ),
    ] = None,
    gpu: GpuName = None,
    sets: Sets = None,
    price: Price = None,
    observed: Observed = None,
    levers: Annotated[bool, typer.Option("--levers", help="Try every lever: bytes, seconds, quality.")] = False,
    chart: Chart = None,
    html: Html = None,
    markdown: Markdown = False,
    rows: Annotated[bool, typer.Option("--rows", help="Every row of the deciding moment with its numbers.")] = False,
    as_json: Json = False,
    units: Units = "gib",
    no_color: NoColor = False,
) -> None:
    """Verdict, ledger by role and phase, time and cost of one job. Exit: 0 fits, 3 uncertain, 4 does not fit."""
    from headcount.job.load import read_spec
    from headcount.plan.scale import counts_in

    unit = _unit(units)
    spec = read_spec(job, overrides=[*_overrides(sets, gpu=gpu, price=price), *_seen(observed)])
    counts = counts_in(gpus) if gpus is not None else []
    if levers or len(counts) > 1:
        _only_one_plan_has(("--chart", chart), ("--html", html), ("--markdown", markdown or None))
    if len(counts) > 1:
        _print_scale(spec, counts, as_json=as_json, no_color=no_color)
        return
    if levers:
        _print_levers(spec, counts, unit, as_json=as_json, no_color=no_color)
        return
    planned = _planned(spec, counts[0] if counts else None)
    _draw(chart, lambda: _charts().plan_scene(planned, unit=unit))
    _write_page(html, lambda: _pages().plan_page(planned, unit=unit))
    if as_json:
        from headcount.plan.as_json import plan_json

        _print_json(plan_json(planned))
    elif markdown:
        from headcount.plan.markdown import plan_markdown

        typer.echo(plan_markdown(planned, unit=unit), nl=False)
    else:
        from headcount.plan.report import plan_view

        console = _console(no_color=no_color)
        console.print(plan_view(planned, console, unit=unit, rows=rows))
    raise typer.Exit(planned.verdict.exit_code)


def _draw(chart: Path | None, drawn: Callable[[], Scene]) -> None:
    if chart is not None:
        _charts().save(drawn(), chart)
        typer.echo(f"wrote {chart}", err=True)


def _only_one_plan_has(*faces: tuple[str, object]) -> None:
    for option, given in faces:
        if given is not None:
            raise InputError.one(option, "shows one plan, not levers or several numbers of GPUs", "one --gpus N")


def _write_page(html: Path | None, made: Callable[[], str]) -> None:
    if html is not None:
        from headcount.plan.write import write_whole

        write_whole(html, made().encode("utf-8"))
        typer.echo(f"wrote {html}", err=True)


def _charts() -> Any:
    from headcount.plan import chart

    return chart


def _pages() -> Any:
    from headcount.plan import page

    return page


def _print_scale(spec: Spec, counts: list[int], *, as_json: bool, no_color: bool) -> None:
    from headcount.plan.scale import scale_json, scaled

    points = scaled(spec, counts)
    if as_json:
        _print_json(scale_json(points))
        return
    from headcount.plan.levers_view import scale_view

    _console(no_color=no_color).print(scale_view(points))


def _print_levers(spec: Spec, counts: list[int], unit: str, *, as_json: bool, no_color: bool) -> None:
    from headcount.plan.levers import levers_json, pulled
    from headcount.plan.planner import fewest_job

    stated = counts[0] if counts else spec.gpus
    results = pulled(spec.build(gpus=stated) if stated else fewest_job(spec))
    if as_json:
        _print_json(levers_json(results))
        return
    from headcount.plan.levers_view import levers_view

    _console(no_color=no_color).print(levers_view(results, unit=unit))


@app.command(
    epilog="Example: headcount search configs/plan/grpo-7b-checker.toml --gpus 8,16 --objective cheapest --deadline 12"
)
def search(
    job: Annotated[Path, typer.Argument(help="Job file (TOML). What it states stays; the rest is searched.")],
    gpus: Annotated[
        str | None, typer.Option("--gpus", help="Counts to try: 8, 8..64 or 8,24; left out: the job's, else a node.")
    ] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="Kinds of card to try, e.g. h100-sxm,h200.")] = None,
    objective: Annotated[str, typer.Option("--objective", help="fastest or cheapest.")] = "fastest",
    deadline: Annotated[float | None, typer.Option("--deadline", min=0, help="Hours that the run may take.")] = None,
    budget: Annotated[float | None, typer.Option("--budget", min=0, help="Dollars that the run may cost.")] = None,
    keep: Annotated[int, typer.Option("--keep", min=1, max=100, help="How many layouts to show.")] = 5,
    sets: Sets = None,
    price: Price = None,
    chart: Chart = None,
    as_json: Json = False,
    units: Units = "gib",
    no_color: NoColor = False,
) -> None:
    """The fastest or cheapest layout that fits, trade-offs of GPUs, hours and money. Exit: 4 when nothing fits."""
    from headcount.job.load import read_spec
    from headcount.plan.optimum import Objective
    from headcount.plan.optimum import search as search_verb
    from headcount.plan.optimum_view import search_json, search_view
    from headcount.plan.scale import counts_in

    unit = _unit(units)
    if objective not in list(Objective):
        raise InputError.one("--objective", f"{objective!r} is none of fastest, cheapest", "--objective fastest")
    kinds: list[str | None] = [*gpu.split(",")] if gpu else [None]
    specs = [read_spec(job, overrides=_overrides(sets, gpu=kind, price=price)) for kind in kinds]
    counts = counts_in(gpus) if gpus is not None else [specs[0].gpus or specs[0].gpus_per_node]
    found = search_verb(
        specs, gpus=counts, objective=Objective(objective), deadline_hours=deadline, budget_usd=budget, keep=keep
    )
    if found.front:
        _draw(chart, lambda: _charts().front_scene(found.front, title=f"{job.stem}: GPUs against hours and money"))
    if as_json:
        _print_json(search_json(found))
    else:
        _console(no_color=no_color).print(search_view(found, unit=unit))
    raise typer.Exit(0 if found.chosen else 4)


@app.command(
    epilog="Examples: headcount explain ppo · headcount explain configs/plan/sft.toml --row update/policy/logits"
)
def explain(
    what: Annotated[str, typer.Argument(help="ppo, grpo, dpo, reward-model, sft; or a job file (then --row).")],
    row: Annotated[
        str | None, typer.Option("--row", help="phase/role/item, e.g. update/policy/logits; or seconds/stage/part.")
    ] = None,
    gpus: Gpus = None,
    gpu: GpuName = None,
    sets: Sets = None,
    parameters: Annotated[
        float, typer.Option("--parameters", min=1, max=1e15, help="Parameters of each network.")
    ] = 7e9,
    copy_gb: Annotated[
        float, typer.Option("--copy-gb", min=0, max=1e9, help="GB of one copy in the naive count.")
    ] = 10.0,
    as_json: Json = False,
    units: Units = "gib",
) -> None:
    """The derivation of one number, or an algorithm's networks: what for, what they cost, what removes them."""
    from headcount.plan.explain import explain_algorithm, explain_row, find_row, find_seconds, list_rows
    from headcount.vocabulary import Algorithm

    unit = _unit(units)
    if what in list(Algorithm):
        for option, given in (("--row", row), ("--gpus", gpus), ("--gpu", gpu), ("--set", sets)):
            if given:
                raise InputError.one(option, "belongs to a job file, not to an algorithm", f"headcount explain {what}")
        _print_lines(explain_algorithm(Algorithm(what), parameters=parameters, copy_gb=copy_gb), as_json=as_json)
        return
    from headcount.job.load import read_spec

    if not Path(what).exists() and Path(what).suffix != ".toml":
        choices = ", ".join(Algorithm)
        raise InputError.one("explain", f"{what!r} is neither a job file nor an algorithm", f"one of {choices}")
    planned = _planned(read_spec(what, overrides=_overrides(sets, gpu=gpu, price=None)), gpus)
    if row is None:
        _print_lines(list_rows(planned, unit=unit if unit != "both" else "GiB"), as_json=as_json)
        return
    if as_json:
        from headcount.plan.as_json import row_json, seconds_json

        seconds = find_seconds(planned, row)
        if seconds is not None:
            name, stage, part = seconds
            _print_json({"schema": "headcount.seconds/1", "key": name, "stage": stage.name, **seconds_json(part)})
            return
        found, moment = find_row(planned, row)
        _print_json({"schema": "headcount.row/1", "moment": moment.label, **row_json(found)})
        return
    _print_lines(explain_row(planned, row, unit=unit if unit != "both" else "GiB"), as_json=False)


def _print_lines(lines: Iterable[str], *, as_json: bool) -> None:
    if as_json:
        _print_json({"schema": "headcount.lesson/1", "lines": list(lines)})
        return
    for line in lines:
        typer.echo(line)


@app.command(epilog="Example: headcount facts gpus --json")
def facts(
    kind: Annotated[
        str,
        typer.Argument(help="gpus, fabrics, models, prices, precisions, optimizers, overheads or recipes."),
    ],
    as_json: Json = False,
    no_color: NoColor = False,
) -> None:
    """What headcount knows, each row with source and date."""
    from headcount.plan.facts_view import facts_rows, facts_table

    rows = facts_rows(kind)
    if as_json:
        _print_json({"schema": "headcount.facts/1", "kind": kind, "rows": rows})
        return
    _console(no_color=no_color).print(facts_table(kind, rows))


@app.command(epilog="Example: headcount backtest evidence/published.jsonl evidence/memory_reports.jsonl")
def backtest(
    files: Annotated[
        list[Path], typer.Argument(help="JSONL of published rows, reports with a job, decode, train or rl rows.")
    ],
    summary: Annotated[bool, typer.Option("--summary", help="Only the figures, not every case.")] = False,
    as_json: Json = False,
) -> None:
    """Predicted against published, row by row: bytes, verdicts and seconds, with errors and coverage."""
    from headcount.measure.backtest import backtest as backtest_verb
    from headcount.measure.backtest_report import backtest_json, backtest_text
    from headcount.measure.backtest_time import is_time_row, time_scores
    from headcount.measure.mapping.evidence import read_cases
    from headcount.plan.planner import plan as plan_verb

    cases = read_cases(files)
    times = time_scores(cases, plan=plan_verb)
    scores = backtest_verb([case for case in cases if not is_time_row(case)], plan=plan_verb)
    typer.echo(backtest_json(scores, times) if as_json else backtest_text(scores, times, details=not summary))


@app.command(epilog="Example: headcount completion bash > ~/.local/share/bash-completion/completions/headcount")
def completion(shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """The script that lets a shell complete verbs, options and files."""
    from click.shell_completion import get_completion_class

    shells = ("bash", "zsh", "fish")
    kind = get_completion_class(shell) if shell in shells else None
    if kind is None:
        raise InputError.one("completion", f"{shell!r} is none of {', '.join(shells)}", "headcount completion bash")
    typer.echo(kind(typer.main.get_command(app), {}, "headcount", "_HEADCOUNT_COMPLETE").source().strip())


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"headcount {version('headcount')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


def _guarded(run: Callable[[], None]) -> int:
    """Errors that a user can mend become one message and an exit code; a closed pipe and Ctrl-C are no accidents."""
    try:
        run()
    except HeadcountError as error:
        count = len(error.mistakes) if isinstance(error, InputError) else 1
        head = "" if count == 1 else f"{count} mistakes:\n"
        print(f"{head}{error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"cannot write the output: {error.strerror or error}", file=sys.stderr)
        return 74
    except Exception as error:
        if os.environ.get("HEADCOUNT_TRACEBACK"):
            raise
        print(f"this is a bug of headcount, not of your input: {type(error).__name__}: {error}", file=sys.stderr)
        print("HEADCOUNT_TRACEBACK=1 shows where; please report it with the command", file=sys.stderr)
        return 70
    return 0


def main() -> None:
    """Entry point of the `headcount` command."""
    if sys.stdout is None:
        sys.exit("headcount: standard output is closed")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no × still gets the rest
    sys.exit(_guarded(app))


if __name__ == "__main__":
    main()
