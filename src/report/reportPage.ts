/** Style and script of report.html. Plain strings: the page must stand alone. */

export const REPORT_CSS = `
:root { color-scheme: light dark; --line: light-dark(#ddd, #444); --soft: light-dark(#f6f6f4, #222); }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1200px; margin: 2rem auto; padding: 0 1rem; }
pre { background: var(--soft); padding: .8rem 1rem; overflow-x: auto; border-radius: 6px; }
#charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(360px, 1fr)); gap: 1rem; }
.chart { border: 1px solid var(--line); border-radius: 6px; padding: .5rem; background: #fff; color: #222; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(420px, 1fr)); gap: 1rem; margin: .6rem 0; }
article { border: 1px solid var(--line); border-radius: 6px; overflow: hidden; }
article header { font-size: 13px; padding: .3rem .7rem; color: #fff; }
header.right { background: #2a7d4f; } header.wrong { background: #9a4a3c; }
.message { padding: .35rem .7rem; border-top: 1px solid var(--line); white-space: pre-wrap; overflow-wrap: anywhere; }
.message b { display: block; font-size: 12px; opacity: .65; }
.message.tool { background: var(--soft); font-family: ui-monospace, monospace; font-size: 13px; }
summary { cursor: pointer; font-weight: 600; margin-top: .8rem; }
`;

export const REPORT_SCRIPT = `
const colours = ['#2563a8', '#c2621b', '#2a7d4f', '#8a3fa0', '#8a8a2a'];
for (const { title, steps, series } of JSON.parse(document.getElementById('data').textContent)) {
  const box = document.createElement('div');
  box.className = 'chart';
  document.getElementById('charts').append(box);
  const few = steps.length < 40;
  new uPlot({
    title, width: box.clientWidth - 4, height: 230,
    scales: { x: { time: false } },
    axes: [{ label: 'step' }, { size: 64, values: (_, ticks) => ticks.map((tick) => String(Number(tick.toPrecision(3)))) }],
    series: [{ label: 'step' }, ...series.map(({ label }, i) => ({
      label, stroke: colours[i], width: 1.5, spanGaps: true, points: { show: few },
    }))],
  }, [steps, ...series.map(({ values }) => values)], box);
}
`;
