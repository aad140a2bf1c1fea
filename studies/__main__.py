"""The slow studies behind docs/studies: offline, online, stress, arms, real, intervals, randomised."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from invariant_bandits.cli.common import PROCESSORS, Bar, check_target, console, one_thread_each, write_page

study = typer.Typer(no_args_is_help=True, help="Studies over many repetitions; slower than the tests.")


def _checked_page(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    check_target(path, "--out", "Markdown page", force=None)
    return path


def _checked_folder(context: typer.Context, folder: Path) -> Path:
    for path in folder.glob(f"{context.info_name}-*"):
        check_target(path, "--figures", "picture", force=None)
    return folder


Seed = Annotated[int, typer.Option(min=0, help="Seed of all randomness.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes to use.")]
Page = Annotated[Path, typer.Option(help="Where the Markdown page goes.", callback=_checked_page)]
Figures = Annotated[Path, typer.Option(help="Folder for its pictures.", callback=_checked_folder)]


@study.command()
def offline(
    out: Page = Path("docs/studies/offline.md"),
    replications: Annotated[int, typer.Option(min=20, help="Repetitions per cell.")] = 400,
    seed: Seed = 20261115,
    jobs: Jobs = PROCESSORS,
) -> None:
    """How often the offline phase is right, and how accurate, on the paper's generator and beyond."""
    from studies import offline as offline_study

    one_thread_each()
    with Bar("starting") as progress:
        results = offline_study.run(
            offline_study.settings(),
            replications=replications,
            seed=seed,
            jobs=jobs,
            progress=lambda done, total: progress("cells", done, total),
        )
    write_page(offline_study.report(results, replications=replications, seed=seed), out)
    missed = sum(not one.reached for _, judged in offline_study.verdicts(results) for one in judged)
    console.print(f"written to {out}; bounds missed: {missed}")


@study.command()
def online(
    out: Page = Path("docs/studies/online.md"),
    figures: Figures = Path("docs/figures"),
    replications: Annotated[int, typer.Option(min=2, help="Repetitions per row.")] = 200,
    seed: Seed = 20261122,
    jobs: Jobs = PROCESSORS,
) -> None:
    """Regret of every policy on the paper's simulations and beyond, and what it must show."""
    from invariant_bandits import plotting
    from invariant_bandits.reports import plots
    from studies import online as online_study
    from studies import online_goals

    one_thread_each()
    with Bar("starting") as progress:
        outcome = online_study.run(replications=replications, seed=seed, jobs=jobs, progress=progress)
    for theme in plotting.THEMES:
        picture = plots.regret_chart(online_study.charted(outcome), theme_name=theme)
        plots.save(picture, figures / f"online-{theme}", ["png"])
    write_page(online_study.report(outcome, pictures=_seen_from(out, figures)), out)
    missed = sum(not verdict.reached for _, verdict in online_goals.verdicts(outcome.regret))
    console.print(f"written to {out}, pictures to {figures}; goals missed: {missed}")


@study.command()
def stress(
    out: Page = Path("docs/studies/stress.md"),
    replications: Annotated[int, typer.Option(min=2, help="Repetitions per world.")] = 60,
    seed: Seed = 20261121,
    jobs: Jobs = PROCESSORS,
) -> None:
    """Regret, widths and alarm of AutoISD in worlds where the logs mislead, and with arms that never change."""
    from studies import stress as stress_study

    one_thread_each()
    with Bar("starting") as progress:
        outcome = stress_study.run(replications=replications, seed=seed, jobs=jobs, progress=progress)
    write_page(stress_study.report(outcome), out)
    missed = sum(not verdict.reached for _, verdict in stress_study.verdicts(outcome))
    console.print(f"written to {out}; goals missed: {missed}")


@study.command()
def arms(
    out: Page = Path("docs/studies/arms.md"),
    replications: Annotated[int, typer.Option(min=2, help="Repetitions per world.")] = 40,
    logs: Annotated[int, typer.Option(min=2, help="Logs to name drifting effects in.")] = 200,
    seed: Seed = 20261218,
    jobs: Jobs = PROCESSORS,
) -> None:
    """Logs of contexts, a label and a click: regret, drifting effects named, new arms found."""
    from studies import arm_report
    from studies import arms as arm_study

    one_thread_each()
    with Bar("starting") as progress:
        outcome = arm_study.run(replications=replications, logs=logs, seed=seed, jobs=jobs, progress=progress)
    write_page(arm_report.report(outcome), out)
    missed = sum(not one.reached for one in arm_report.verdicts(outcome))
    console.print(f"written to {out}; goals missed: {missed}")


@study.command()
def real(
    out: Page = Path("docs/studies/real.md"),
    figures: Figures = Path("docs/figures"),
    replications: Annotated[int, typer.Option(min=2, help="Draws of the logged actions.")] = 4,
    dates: Annotated[int, typer.Option(min=3, help="Starting dates in the second half.")] = 24,
    data: Annotated[
        list[str] | None,
        typer.Option(help="A data set, several times; those of every field if not given."),
    ] = None,
    seed: Seed = 20261123,
    jobs: Jobs = PROCESSORS,
) -> None:
    """Public data, played as logs first and then online; needs the extra "real"."""
    from invariant_bandits import plotting
    from invariant_bandits.reports import plots
    from studies import gain_chart, real_data, real_goals, real_report
    from studies import real as real_study
    from studies.real_policies import AUTO_TUNED

    one_thread_each()
    outcomes = {}
    with Bar("starting") as progress:
        for name in real_data.chosen(data or real_data.PLAYED):
            outcomes[name] = real_study.run(
                real_data.DATA[name](), replications=replications, dates=dates, seed=seed, jobs=jobs, progress=progress
            )
    charts = {outcome.name: real_goals.charted(outcome) for outcome in outcomes.values()}
    for theme in plotting.THEMES:
        picture = gain_chart.gain_chart(charts, ours=real_goals.OURS, reference=AUTO_TUNED, theme_name=theme)
        plots.save(picture, figures / f"real-{theme}", ["png"])
    write_page(real_report.report(outcomes, pictures=_seen_from(out, figures)), out)
    missed = {
        policy: sum(not verdict.reached for _, verdict in real_goals.all_verdicts(outcomes, policy))
        for policy in real_goals.OURS
    }
    shown = ", ".join(f"{policy}: {count}" for policy, count in missed.items())
    console.print(f"written to {out}, pictures to {figures}; goals missed, {shown}")


@study.command()
def intervals(
    out: Page = Path("docs/studies/intervals.md"),
    replications: Annotated[int, typer.Option(min=2, help="Logs per cell.")] = 400,
    seed: Seed = 20261216,
    jobs: Jobs = PROCESSORS,
) -> None:
    """How often off-policy intervals cover, how wide they are and when they refuse, on rewards of many kinds."""
    from studies import interval_report
    from studies import intervals as interval_study

    one_thread_each()
    with Bar("starting") as progress:
        results = interval_study.run(
            interval_study.settings(),
            replications=replications,
            seed=seed,
            jobs=jobs,
            progress=lambda done, total: progress("cells", done, total),
        )
    write_page(interval_report.report(results, replications=replications, seed=seed), out)
    missed = sum(not verdict.reached for _, _, verdict in interval_report.verdicts(results))
    console.print(f"written to {out}; bounds missed: {missed}")


@study.command()
def randomised(
    out: Page = Path("docs/studies/randomised.md"),
    figures: Figures = Path("docs/figures"),
    replications: Annotated[int, typer.Option(min=2, help="Logs; a third where not default.")] = 300,
    seed: Seed = 20261217,
    jobs: Jobs = PROCESSORS,
) -> None:
    """What randomised decisions cost, and how much their log tells about another policy later."""
    from invariant_bandits import plotting
    from invariant_bandits.reports import plots
    from studies import price_chart, randomised_report
    from studies import randomised as randomised_study

    one_thread_each()
    with Bar("starting") as progress:
        results = randomised_study.run(
            replications=replications,
            others=max(2, replications // 3),
            seed=seed,
            jobs=jobs,
            progress=lambda done, total: progress("worlds", done, total),
        )
    for theme in plotting.THEMES:
        picture = price_chart.price_chart(randomised_report.charted(results), theme_name=theme)
        plots.save(picture, figures / f"randomised-{theme}", ["png"])
    write_page(randomised_report.report(results, seed=seed, pictures=_seen_from(out, figures)), out)
    missed = sum(not verdict.reached for _, verdict in randomised_report.verdicts(results))
    console.print(f"written to {out}, pictures to {figures}; bounds missed: {missed}")


def _seen_from(page: Path, figures: Path) -> str:
    """The folder of the figures as a page links to it."""
    return Path(os.path.relpath(figures, page.parent)).as_posix()


if __name__ == "__main__":
    study()
