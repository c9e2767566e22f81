// Keeps what a reader has opened and focused while a part of the page is replaced, and lets charts be redrawn.
(() => {
  "use strict";
  let opened = [];
  let focused = "";
  let scrolled = new Map();

  const remember = (root) => {
    opened = [...root.querySelectorAll("details[open][id]")].map((details) => details.id);
    focused = root.contains(document.activeElement) ? document.activeElement.id : "";
    scrolled = new Map([...root.querySelectorAll(".scroll")].map((box, index) => [index, box.scrollLeft]));
  };
  const restore = (root) => {
    for (const id of opened) {
      const details = document.getElementById(id);
      if (details) details.open = true;
    }
    [...root.querySelectorAll(".scroll")].forEach((box, index) => {
      box.scrollLeft = scrolled.get(index) || 0;
    });
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  };

  const replaced = (event) => event.detail.target || event.target;
  document.addEventListener("htmx:sseBeforeMessage", (event) => remember(event.target));
  document.addEventListener("htmx:sseMessage", (event) => restore(event.target));
  document.addEventListener("htmx:beforeSwap", (event) => remember(replaced(event)));
  document.addEventListener("htmx:afterSwap", (event) => {
    restore(replaced(event));
    replaced(event).dispatchEvent(new Event("charts:replaced", { bubbles: true }));
  });

  // the connection and the age of the data, by this computer's clock: without a server, nothing else would change
  const connection = document.getElementById("connection");
  const showLost = () => {
    if (!connection.hidden) return;
    connection.textContent = `Connection lost since ${new Date().toLocaleTimeString("en-GB")}. The page shows what it had before.`;
    connection.hidden = false;
    document.body.classList.add("lost");
  };
  const showFound = () => {
    connection.hidden = true;
    document.body.classList.remove("lost");
  };
  for (const kind of ["htmx:sseError", "htmx:sendError"]) document.addEventListener(kind, showLost);
  for (const kind of ["htmx:sseOpen", "htmx:sseMessage", "htmx:afterOnLoad"]) document.addEventListener(kind, showFound);

  const MAX_LIVE = 5;
  let received = performance.now();
  document.addEventListener("htmx:sseMessage", () => {
    received = performance.now();
  });
  window.setInterval(() => {
    const waited = (performance.now() - received) / 1000;
    for (const shown of document.querySelectorAll("[data-age]")) {
      const age = Number(shown.dataset.age) + waited;
      const text = age < 100 ? `${Math.round(age)} s` : age < 6000 ? `${Math.round(age / 60)} min` : `${Math.round(age / 3600)} h`;
      shown.textContent = age < MAX_LIVE ? "live" : `${text} old`;
    }
  }, 1000);

  // fields that another field replaces are off, so that every field that can be used changes the answer:
  // data-off="cluster" while that field has a value, "machines=1" while it has this value, "!preset" while it has none,
  // "kind=large" while the chosen workload is in this group
  const read = (form, name) => {
    if (name !== "kind") return form.elements[name].value.trim();
    const chosen = form.elements.spec.value.trim() ? null : form.elements.workload.selectedOptions[0];
    return chosen?.parentElement.dataset.kind ?? "";
  };
  const holds = (form, condition) => {
    const [, not, name, value] = /^(!?)(\w+)=?(.*)$/.exec(condition);
    const actual = read(form, name);
    return (value ? actual === value : actual !== "") !== (not === "!");
  };
  const switchFields = () => {
    for (const fields of document.querySelectorAll("fieldset[data-off]")) {
      fields.disabled = fields.dataset.off.split(" ").some((all) => all.split("&").every((one) => holds(fields.form, one)));
    }
  };
  switchFields();

  // a slider shows its value while it moves; one over a list of values keeps the value in a hidden field
  document.addEventListener("input", (event) => {
    const slider = event.target;
    const shown = slider.id && document.querySelector(`output[for="${CSS.escape(slider.id)}"]`);
    if (!shown) return;
    const value = slider.dataset.values ? slider.dataset.values.split("|")[Number(slider.value)] : slider.value;
    shown.textContent = /^\d{5,}$/.test(value) ? Number(value).toLocaleString("en") : value;
    slider.setAttribute("aria-valuetext", value);
    if (slider.dataset.name) slider.form.elements[slider.dataset.name].value = value;
  }, true);
  // after the slider's field, and before htmx reads the form
  for (const kind of ["input", "change"]) document.addEventListener(kind, switchFields, true);

  // command lines can be copied, if the browser allows it: only from this computer or over TLS
  const addCopyButtons = (root) => {
    if (!navigator.clipboard) return;
    for (const code of root.querySelectorAll("pre.line > code:only-child")) {
      const button = Object.assign(document.createElement("button"), { type: "button", className: "copy", textContent: "Copy" });
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
        window.setTimeout(() => { button.textContent = "Copy"; }, 1500);
      });
      code.after(button);
    }
  };
  addCopyButtons(document);
  document.addEventListener("charts:replaced", (event) => addCopyButtons(event.target));

  // a link to a folded part opens it, and so does a rack of a drawing, or a point of a chart that has the name of the part
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-opens], [data-rack]");
    const details = link && document.getElementById(link.dataset.opens || `rack-${link.dataset.rack}`);
    if (!details) return;
    details.open = true;
    if (link.dataset.rack) details.scrollIntoView({ block: "nearest" });
  });

  // the log of a job: follows the stream, keeps the last lines, and shows only those that match the search
  const MAX_LOG = 400000;
  const log = document.getElementById("log");
  if (log) {
    const search = document.getElementById("log-search");
    const follow = document.getElementById("log-follow");
    const state = document.getElementById("log-state");
    let text = "";
    let pending = 0;
    const show = () => {
      pending = 0;
      const wanted = search.value.toLowerCase();
      const lines = wanted ? text.split("\n").filter((line) => line.toLowerCase().includes(wanted)) : [text];
      log.textContent = lines.join("\n");
      if (follow.checked) log.scrollTop = log.scrollHeight;
    };
    // the state, the buttons, and the outlook follow the log: when the job starts, and when it has ended
    const job = document.getElementById("job");
    const refresh = () => htmx.ajax("GET", window.location.href, { target: "#job", swap: "innerHTML", select: "#job > *" });
    const stream = new EventSource(log.dataset.log);
    stream.addEventListener("open", () => {
      text = ""; // also after a lost connection, because the stream begins again
    });
    stream.addEventListener("log", (event) => {
      text = (text + JSON.parse(event.data)).slice(-MAX_LOG);
      state.textContent = "live";
      if (job.dataset.state === "queued") {
        job.dataset.state = "running";
        refresh();
      }
      if (!pending) pending = window.requestAnimationFrame(show);
    });
    stream.addEventListener("end", () => {
      stream.close();
      if ("open" in job.dataset) refresh();
      state.textContent = text ? "the job has ended" : "the job has not printed anything";
    });
    stream.addEventListener("error", () => {
      const isOver = stream.readyState === EventSource.CLOSED;
      state.textContent = isOver ? "the log cannot be read; reload the page" : "connection lost; trying again";
    });
    search.addEventListener("input", show);
  }

  // a point of a plan's front opens the reasons of that choice
  document.addEventListener("charts:drawn", (event) => {
    if (event.target.id !== "chart-plan") return;
    echarts.getInstanceByDom(event.target).on("click", (point) => {
      const details = point.seriesIndex === 0 && document.getElementById(`choice-${point.dataIndex}`);
      if (!details) return;
      details.open = true;
      details.scrollIntoView({ block: "nearest" });
    });
  });
})();
