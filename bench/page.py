"""The page of curves: one file that needs nothing else, readable in light and in dark."""

from __future__ import annotations

from html import escape

from bench.plot import Chart, figure_word, mark, svg

LIGHT = ("#0b62c4", "#c2410c", "#0f7b5f", "#8b3fa8", "#9a6700", "#b4266b", "#4b5563", "#0e7490")
DARK = ("#6cb2ff", "#ff9d5c", "#4fd1a5", "#d19bf0", "#e6c14f", "#ff8fc0", "#b3bccb", "#67d4e8")
"""The colours of the lines by their number; each has the same hue in both."""

STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --card: #f7f8fa; --edge: #e0e4ea; --ink: #16191f; --soft: #5b6472;
  --grid: #e3e7ed; --axis: #98a2b3; LIGHT }
@media (prefers-color-scheme: dark) { :root { --back: #101318; --card: #181c23; --edge: #2a303b; --ink: #e8ebf0;
  --soft: #a0a9b8; --grid: #2a303b; --axis: #5f6a7b; DARK } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 2rem 1.25rem 3rem; max-width: 82rem; background: var(--back); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif }
h1 { margin: 0 0 .25rem; font-size: 1.7rem; letter-spacing: -.01em }
h2 { margin: 2.4rem 0 .2rem; font-size: 1.2rem }
h3 { margin: 0; font-size: 1rem }
p { margin: .2rem 0; color: var(--soft); max-width: 62rem }
.legend { display: flex; flex-wrap: wrap; gap: .4rem 1.4rem; margin: 1rem 0 0; padding: 0; list-style: none }
.legend svg { width: 34px; height: 12px; margin-right: .45rem; vertical-align: baseline }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem;
  margin-top: .8rem; align-items: start }
figure { margin: 0; padding: .9rem 1rem .7rem; background: var(--card); border: 1px solid var(--edge);
  border-radius: 10px }
figcaption { display: flex; justify-content: space-between; gap: 1rem; align-items: baseline }
figcaption span { color: var(--soft); font-size: .85rem; white-space: nowrap }
figure svg { display: block; width: 100%; height: auto; margin-top: .4rem }
text { fill: var(--soft); font: 12px system-ui, sans-serif }
.tick { font-variant-numeric: tabular-nums }
.label { fill: var(--ink) }
.grid { stroke: var(--grid) } .axis { stroke: var(--axis) }
.curve { fill: none; stroke: var(--line); stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round }
.s0 .curve { stroke-width: 3.2 } .s0 .label { font-weight: 700 }
.lead { fill: none; stroke: var(--line); opacity: .45 }
.line g, .legend g { fill: var(--line); stroke: none }
details { font-size: .85rem; margin-top: .3rem }
summary { cursor: pointer; color: var(--soft) }
.wide { overflow-x: auto }
table { border-collapse: collapse; margin-top: .3rem; font-variant-numeric: tabular-nums }
th, td { padding: .15rem .7rem .15rem 0; text-align: right; white-space: nowrap; font-weight: 400 }
th { color: var(--soft) } th:first-child, td:first-child { text-align: left }
tbody tr { border-top: 1px solid var(--edge) }
"""


def page(title: str, about: list[str], sections: dict[str, list[Chart]], missing: list[str]) -> str:
    """Return the whole page: sections of charts, each with its figures as a table, and at its end what is missing."""
    charts = [chart for group in sections.values() for chart in group]
    names = list(dict.fromkeys(name for chart in charts for name in chart.lines))
    numbers = {name: number for number, name in enumerate(names)}
    body = [f"<h1>{escape(title)}</h1>", *(f"<p>{escape(line)}</p>" for line in about), _legend(numbers)]
    for heading, group in sections.items():
        body.append(f"<h2>{escape(heading)}</h2>")
        body.append('<div class="charts">')
        body += [_figure(chart, numbers) for chart in group]
        body.append("</div>")
    if missing:
        body += ["<h2>Not measured</h2>", *(f"<p>{escape(line)}</p>" for line in missing)]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{style(len(names))}</style></head>\n<body>\n' + (
        "\n".join(body) + "\n</body></html>\n"
    )


def style(lines: int) -> str:
    """Return the style of a page with so many lines."""
    light = "; ".join(f"--c{number}: {colour}" for number, colour in enumerate(LIGHT))
    dark = "; ".join(f"--c{number}: {colour}" for number, colour in enumerate(DARK))
    rules = [f".s{number} {{ --line: var(--c{number % len(LIGHT)}) }}" for number in range(lines)]
    return STYLE.replace("LIGHT", light).replace("DARK", dark) + "\n".join(rules)


def _legend(numbers: dict[str, int]) -> str:
    items = []
    for name, number in numbers.items():
        line = f'<path class="curve" d="M1 6H33"/><g>{mark(number, 17, 6)}</g>'
        items.append(
            f'<li><svg class="s{number}" viewBox="0 0 34 12" aria-hidden="true">{line}</svg>{escape(name)}</li>'
        )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _figure(chart: Chart, numbers: dict[str, int]) -> str:
    better = "more is better" if chart.more_is_better else "less is better"
    caption = f"<figcaption><h3>{escape(chart.title)}</h3><span>{better}</span></figcaption>"
    return f"<figure>{caption}\n{svg(chart, numbers)}\n{_table(chart)}</figure>"


def _table(chart: Chart) -> str:
    places = chart.places()
    titles = "".join(f"<th>{escape(chart.x_word(x) if x else '0')}</th>" for x in places)
    rows = []
    for name, line in chart.lines.items():
        known = dict(line)
        cells = "".join(f"<td>{figure_word(known[x]) if x in known else '-'}</td>" for x in places)
        rows.append(f"<tr><td>{escape(name)}</td>{cells}</tr>")
    head = f"<thead><tr><th>{escape(chart.y_title)} by {escape(chart.x_title)}</th>{titles}</tr></thead>"
    table = f'<div class="wide"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>'
    return f"<details><summary>Figures</summary>{table}</details>"
