// Draws the charts of the report: fits legends and titles to the width, follows the light or dark color
// scheme, and prepares the page for printing.
(() => {
  "use strict";
  const PRINT_WIDTH = 660;
  const LEGEND_ROW = 22;
  const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const pen = document.createElement("canvas").getContext("2d");
  const drawn = [];

  const theme = (ink, soft, line, page, darkMode) => {
    const axis = {
      axisLine: { lineStyle: { color: soft } },
      axisTick: { lineStyle: { color: soft } },
      axisLabel: { color: ink },
      nameTextStyle: { color: soft },
      splitLine: { lineStyle: { color: line } },
    };
    return {
      darkMode,
      backgroundColor: "transparent",
      textStyle: { fontFamily: FONT, color: ink },
      title: { textStyle: { color: ink }, subtextStyle: { color: soft } },
      legend: { textStyle: { color: ink }, inactiveColor: line },
      tooltip: { backgroundColor: page, borderColor: line, textStyle: { color: ink } },
      toolbox: { iconStyle: { borderColor: soft }, feature: { saveAsImage: { backgroundColor: page } } },
      markPoint: { label: { color: ink } },
      line: { endLabel: { color: ink } },
      categoryAxis: { ...axis, splitLine: { show: false } },
      valueAxis: axis,
      logAxis: axis,
    };
  };
  const LIGHT = theme("#16191d", "#565d67", "#d9dde3", "#ffffff", false);
  const DARK = theme("#e8eaed", "#a5adb8", "#363c45", "#14171b", true);
  const currentTheme = () => (dark.matches ? DARK : LIGHT);

  const formatNumber = (value) => {
    if (typeof value !== "number") return "–";
    const digits = value >= 100 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 };
    return value.toLocaleString("en", digits);
  };

  const ICON_WIDTH = 26 + 5;
  const LEGEND_GAP = 14;
  const measureNames = (option) => {
    pen.font = `12px ${FONT}`;
    return option.legend.data.map((entry) => pen.measureText(entry.name).width);
  };

  // counts the rows of the legend at this width, the way ECharts wraps it
  const countLegendRows = (widths, width) => {
    let rows = 1;
    let used = 0;
    for (const name of widths) {
      const item = Math.min(name, width - 60) + ICON_WIDTH + LEGEND_GAP;
      if (used > 0 && used + item > width) {
        rows += 1;
        used = 0;
      }
      used += item;
    }
    return rows;
  };

  const fitToWidth = (option, height, width) => {
    const names = measureNames(option);
    const legend = countLegendRows(names, width) * LEGEND_ROW;
    const truncated = { width: width - 60, overflow: "truncate" };
    const fit = {
      ...option,
      title: {
        ...option.title,
        textStyle: { ...option.title.textStyle, ...truncated },
        subtextStyle: { ...option.title.subtextStyle, ...truncated },
      },
      legend: {
        ...option.legend,
        itemGap: LEGEND_GAP,
        textStyle: { ...option.legend.textStyle, ...(Math.max(...names) > width - 60 ? truncated : {}) },
      },
      grid: { ...option.grid, bottom: legend + 14 },
      tooltip: { ...option.tooltip, valueFormatter: formatNumber },
    };
    if (option.yAxis.type === "category") {
      pen.font = `12px ${FONT}`;
      const lines = option.yAxis.data.flatMap((name) => String(name).split("\n"));
      const widest = Math.ceil(Math.max(...lines.map((line) => pen.measureText(line).width))) + 4;
      const label = { ...option.yAxis.axisLabel, width: Math.min(widest, width < 420 ? 132 : 245) };
      fit.yAxis = { ...option.yAxis, axisLabel: label };
    }
    return { option: fit, height: height + legend };
  };

  // the halo of a label has the color of the page behind it
  const matchHalos = (option, page) =>
    JSON.parse(JSON.stringify(option, (key, value) => (key === "textBorderColor" ? page : value)));

  const draw = (entry, width = entry.element.clientWidth) => {
    const option = matchHalos(entry.options[entry.shown], entry.theme.tooltip.backgroundColor);
    const fit = fitToWidth(option, entry.heights[entry.shown], width);
    entry.element.style.height = `${fit.height}px`;
    entry.chart.resize({ width, height: fit.height, silent: true });
    entry.chart.setOption(fit.option, { notMerge: true });
    entry.width = width;
  };

  const start = (description) => {
    const element = document.getElementById(description.id);
    const width = element.clientWidth;
    const theme = currentTheme();
    const chart = echarts.init(element, theme, { renderer: "svg", width, height: 300 });
    const entry = { ...description, element, chart, theme };
    chart.on("finished", () => {
      element.dataset.drawn = "true";
    });
    draw(entry, width);
    drawn.push(entry);
    element.dispatchEvent(new Event("charts:drawn", { bubbles: true }));
  };

  const startAll = (root) => {
    for (const data of root.querySelectorAll("#charts-json, script[data-charts]")) {
      JSON.parse(data.textContent).forEach(start);
    }
    for (const select of root.querySelectorAll("select[data-charts]")) {
      select.addEventListener("change", () => {
        const section = document.getElementById(select.dataset.charts);
        for (const entry of drawn) {
          if (section.contains(entry.element) && select.value in entry.options) {
            entry.shown = select.value;
            draw(entry);
          }
        }
      });
    }
  };
  startAll(document);

  // a page that replaces a part of itself announces it, so that its new charts are drawn
  document.addEventListener("charts:replaced", (event) => {
    for (const entry of drawn.filter((old) => !old.element.isConnected)) {
      entry.chart.dispose();
      drawn.splice(drawn.indexOf(entry), 1);
    }
    startAll(event.target);
  });

  const changeTheme = (entry, theme, width) => {
    entry.theme = theme;
    entry.chart.setTheme(theme);
    draw(entry, width);
  };

  let printing = false;
  let pending = 0;
  window.addEventListener("resize", () => {
    window.cancelAnimationFrame(pending);
    pending = window.requestAnimationFrame(() => {
      if (printing) return;
      for (const entry of drawn) if (entry.element.clientWidth !== entry.width) draw(entry);
    });
  });
  dark.addEventListener("change", () => {
    if (printing) return;
    for (const entry of drawn) changeTheme(entry, currentTheme());
  });

  // paper is white and narrow, and folded sections cannot be opened on it
  const folded = [];
  window.addEventListener("beforeprint", () => {
    printing = true;
    for (const details of document.querySelectorAll("details:not([open])")) {
      details.open = true;
      folded.push(details);
    }
    for (const entry of drawn) changeTheme(entry, LIGHT, PRINT_WIDTH);
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    for (const details of folded.splice(0)) details.open = false;
    for (const entry of drawn) changeTheme(entry, currentTheme());
  });
})();
