// What the pages do in the browser: forms become documents of the API, answers become notices, numbers become charts, events become a list.
"use strict";

(() => {
  const byId = (id) => document.getElementById(id);

  // Notices: at the top of the window, and those of a form beside what they are about.

  function line(text, isError) {
    const line = document.createElement("p");
    line.className = isError ? "error" : "done";
    line.setAttribute("role", isError ? "alert" : "status");
    line.textContent = text;
    return line;
  }

  const tell = (text, isError) => byId("notice").replaceChildren(line(text, isError));

  // The field of a form that a message names, if it names one.
  function fieldOf(form, text) {
    const fields = [...(form?.elements ?? [])].filter((field) => field.name && field.checkVisibility());
    return fields.find((field) => new RegExp(`\\b${field.name}\\b`).test(text));
  }

  function refuse(button, text) {
    tell(text, true);
    const field = fieldOf(button.closest("form"), text);
    const place = field?.closest("label") ?? button.closest(".call") ?? button;
    field?.setAttribute("aria-invalid", "true");
    const refusal = line(text, true);
    refusal.classList.add("refusal");
    place.after(refusal);
    refusal.scrollIntoView({ block: "nearest" });
  }

  // What was said of an earlier request is not said of the next one.
  function forget() {
    byId("notice").replaceChildren();
    byId("changes")?.replaceChildren();
    for (const old of document.querySelectorAll(".refusal")) old.remove();
    for (const field of document.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  }

  async function problemOf(response) {
    try {
      return JSON.parse(await response.text());
    } catch {
      return { title: "The server answers", detail: `${response.status}.` };
    }
  }

  const textOf = ({ title, detail }) => `${title}: ${detail}`;

  // Forms: each input with `data-as` is a key of the document. What is empty is left out.

  const readers = {
    text: (input) => input.value.trim() || undefined,
    number: (input) => {
      const text = input.value.trim();
      if (text && !/^\d+$/.test(text)) throw new Error(`${text} is not a number.`);
      return text ? Number(text) : undefined;
    },
    list: (input) => {
      const all = input.value.split(/[\s,]+/).filter(Boolean);
      return all.length ? all : undefined;
    },
    json: (input) => (input.checked ? JSON.parse(input.value) : undefined),
    chap: (fieldset) => {
      const users = [...fieldset.querySelectorAll("[data-chap]")].map(credentials).filter(Boolean);
      return users.length ? users : undefined;
    },
    credentials: (fieldset) => credentials(fieldset) ?? undefined,
    mask: (fieldset) => {
      if (fieldset.querySelector("[data-all]").checked) return undefined;
      const rows = [...fieldset.querySelectorAll("[data-lun]")].filter((row) => row.querySelector("[data-sees]").checked);
      return rows.map((row) => {
        const entry = { number: Number(row.dataset.lun) };
        const shown = readers.number(row.querySelector("[data-number]"));
        if (shown !== undefined) entry.as = shown;
        if (row.querySelector("[data-read-only]").checked) entry.read_only = true;
        return entry;
      });
    },
  };

  // A user with the file of its secret; neither is none.
  function credentials(row) {
    const [user, secret_file] = ["user", "file"].map((part) => row.querySelector(`[data-${part}]`).value.trim());
    if (!user && !secret_file) return null;
    if (!user || !secret_file) throw new Error("a user of CHAP and the file of its secret belong together.");
    return { user, secret_file };
  }

  function documentOf(form) {
    const whole = form.querySelector("[data-as=document]");
    if (whole) return JSON.parse(whole.value);
    const result = JSON.parse(form.dataset.document);
    for (const input of form.querySelectorAll("[data-as]")) {
      const key = input.dataset.key || input.name;
      const value = readers[input.dataset.as](input);
      if (value === undefined) delete result[key];
      else result[key] = value;
    }
    return result;
  }

  const valueOf = (input) => (input.type === "checkbox" && !input.checked ? "" : input.value.trim());

  const fill = (template, form, encode) =>
    template.replace(/\{(\w+)\}/g, (place, name) => (form.elements[name] ? encode(valueOf(form.elements[name])) : place));

  const word = (text) => (/^[\w@%+:,./=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

  // A value as TOML has it inline. A text goes bare at the top of KEY=VALUE, where it cannot be taken for anything else.
  function toml(value, isTop) {
    if (typeof value === "string") return isTop && /^([a-z/][a-z0-9/_.-]*|\d+[kmgtp])$/i.test(value) && !/^(true|false|inf|nan)$/.test(value) ? value : JSON.stringify(value);
    if (Array.isArray(value)) return `[${value.map((item) => toml(item)).join(", ")}]`;
    if (typeof value === "object") return `{ ${Object.entries(value).map(([key, item]) => `${key} = ${toml(item)}`).join(", ")} }`;
    return String(value);
  }

  // The line of `lunette ctl`, as far as the form is filled.
  function lineOf(code, form) {
    const name = word(fill(code.dataset.name, form, (text) => text || "…"));
    const keys = documentOf(form);
    if (code.dataset.ctl === "resize") return `lunette ctl resize ${name} ${word(keys.create ?? "…")}`;
    return [`lunette ctl ${code.dataset.ctl}`, name, ...Object.entries(keys).map(([key, value]) => word(`${key}=${toml(value, true)}`))].join(" ");
  }

  function showLine(form) {
    for (const code of form.querySelectorAll("[data-ctl]")) {
      try {
        code.textContent = lineOf(code, form);
      } catch {
        // The form does not make a document yet; sending it says why.
      }
    }
  }

  htmx.defineExtension("document", {
    onEvent(name, event) {
      if (name !== "htmx:configRequest") return true;
      const { elt, headers } = event.detail;
      const form = elt.closest("form");
      try {
        documentOf(form);
      } catch (error) {
        forget();
        refuse(elt, `This cannot be sent: ${error.message}`);
        event.preventDefault();
        return false;
      }
      event.detail.path = fill(event.detail.path, form, encodeURIComponent);
      headers["Content-Type"] = "application/json";
      if (form.dataset.etag) headers["If-Match"] = form.dataset.etag;
      return true;
    },
    encodeParameters: (request, _parameters, elt) => {
      request.overrideMimeType("application/json");
      return JSON.stringify(documentOf(elt.closest("form")));
    },
  });

  document.addEventListener("input", (event) => {
    const form = event.target.closest("form");
    if (form) showLine(form);
  });

  // Documents that are loaded when they are looked at

  async function load(area) {
    area.removeAttribute("data-load-pending");
    const response = await fetch(area.dataset.load, { headers: { "HX-Request": "true" } });
    if (!response.ok) return tell(textOf(await problemOf(response)), true);
    area.form.dataset.etag = response.headers.get("ETag");
    area.value = JSON.stringify(await response.json(), null, 2);
    showLine(area.form);
  }

  function loadVisible() {
    for (const area of document.querySelectorAll("textarea[data-load-pending]")) {
      if (area.checkVisibility()) load(area).catch(() => tell("The server does not answer.", true));
    }
  }

  document.addEventListener("toggle", loadVisible, true);

  // Answers

  function showPlan(text) {
    const place = byId("changes");
    place.replaceChildren();
    const { changes } = JSON.parse(text);
    const title = document.createElement("h2");
    title.textContent = changes.length ? "What changes" : "Nothing changes";
    const list = document.createElement("ol");
    for (const { change, sessions } of changes) {
      const item = document.createElement("li");
      item.textContent = change;
      const notices = document.createElement("ul");
      for (const { session, initiator, notices: what } of sessions) {
        const notice = document.createElement("li");
        notice.textContent = `session ${session} of ${initiator}: ${what}`;
        notices.append(notice);
      }
      if (sessions.length) item.append(notices);
      list.append(item);
    }
    place.append(title, list);
  }

  const refresh = () => htmx.ajax("GET", location.pathname + location.search, { target: "#main", select: "#main", swap: "outerHTML" });

  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.requestConfig.verb !== "get") forget();
  });

  // The same request once more, which takes away what sessions use, too.
  const force = ({ verb, path, headers }, elt) =>
    fetch(`${path}?force=true`, { method: verb.toUpperCase(), headers, body: verb === "delete" ? undefined : JSON.stringify(documentOf(elt.closest("form"))) });

  document.addEventListener("htmx:afterRequest", async (event) => {
    const { elt, xhr, requestConfig } = event.detail;
    if (requestConfig.verb === "get") return;
    let answer = { ok: event.detail.successful, status: xhr.status, text: () => xhr.responseText };
    if (answer.status === 409) {
      const problem = await problemOf(answer);
      const isForced = problem.title === "in use" && confirm(`${problem.detail}\n\nDo it all the same?`);
      if (isForced) answer = await force(requestConfig, elt).catch(() => ({ status: 0 }));
    }
    if (answer.status === 0) return refuse(elt, "The server does not answer.");
    if (!answer.ok) return refuse(elt, textOf(await problemOf(answer)));
    if (elt.id === "plan") return showPlan(await answer.text());
    const line = elt.parentElement.querySelector(".ctl");
    tell(`Done: ${line.textContent}`, false);
    if (elt.dataset.then) return location.assign(elt.dataset.then);
    const text = await answer.text();
    await refresh();
    if (elt.id === "apply") showPlan(text);
  });

  // Rates of sessions: differences between two readings of the page

  const readings = new Map();

  function showRates() {
    const time = performance.now();
    for (const session of document.querySelectorAll("[data-session]")) {
      const { session: id, read, written } = session.dataset;
      const before = readings.get(id);
      if (before && before.read === read && before.written === written && time - before.time < 1000) continue;
      const seconds = (time - (before?.time ?? time)) / 1000;
      for (const [name, now] of Object.entries({ read, written })) {
        const rate = before ? Math.max(0, Number(now) - Number(before[name])) / seconds / 1e6 : null;
        session.querySelector(`[data-rate=${name}]`).textContent = rate === null ? "…" : `${rate.toFixed(2)} MB/s`;
      }
      readings.set(id, { read, written, time });
    }
  }

  // On a telephone the rows of tables are cards, and each cell says what it is.

  function labelCells(table) {
    const labels = [...table.querySelectorAll("thead th")].map((heading) => heading.textContent);
    for (const row of table.tBodies[0]?.rows ?? []) {
      [...row.cells].forEach((cell, index) => (cell.dataset.label = labels[index] ?? ""));
    }
  }

  // Events

  const MAX_EVENTS = 500;

  function follow(list) {
    const source = new EventSource(list.dataset.events);
    const show = (message) => {
      const { kind, text } = JSON.parse(message.data);
      const item = document.createElement("li");
      const time = document.createElement("time");
      time.textContent = new Date().toLocaleTimeString();
      item.append(time, ` ${kind}: ${text}`);
      list.prepend(item);
      while (list.children.length > MAX_EVENTS) list.lastChild.remove();
    };
    for (const kind of ["change", "session", "lost"]) source.addEventListener(kind, show);
    source.addEventListener("error", () => tell("The stream of events was interrupted; the browser tries again.", true));
    addEventListener("pagehide", () => source.close());
  }

  // Numbers: counts since the server's start, read every two seconds. A rate is the difference of two of them.

  const INTERVAL_MS = 2000;
  const POINTS = 150;
  const BUSIEST = 16;

  function direction(now, before, seconds) {
    const commands = now.commands - before.commands;
    // The shortest bound that 99 of 100 commands keep; none when they are longer than all bounds.
    const within = () => {
      const counted = now.buckets.map(([bound, count], index) => [bound, count - (before.buckets[index]?.[1] ?? 0)]);
      const found = counted.sort((a, b) => a[0] - b[0]).find(([, count]) => count >= commands * 0.99);
      return found ? found[0] * 1000 : Infinity;
    };
    return {
      bytes: Math.max(0, now.bytes - before.bytes) / seconds / 1e6,
      commands: Math.max(0, commands) / seconds,
      latency: commands > 0 ? ((now.seconds - before.seconds) / commands) * 1000 : null,
      within: commands > 0 ? within() : null,
      count: commands,
    };
  }

  const none = { bytes: 0, commands: 0, seconds: 0, buckets: [] };

  function rates(now, before, seconds) {
    return { read: direction(now.read, before?.read ?? none, seconds), write: direction(now.write, before?.write ?? none, seconds) };
  }

  const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

  const nameOf = (lun) => `${lun.target} LUN ${lun.lun}`;

  function chart(section) {
    const charts = new Map();
    const history = new Map();
    const chosen = byId("charted");
    let last = null;

    const data = (field) => {
      const points = history.get(chosen.value) ?? [];
      return [points.map((point) => point.time), points.map((point) => point.read[field]), points.map((point) => point.write[field])];
    };

    function draw() {
      const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
      for (const place of section.querySelectorAll("[data-chart]")) {
        const field = place.dataset.chart;
        charts.get(field)?.destroy();
        const axis = { stroke: color("--text"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 } };
        // Without a pointer over the chart, its legend has the latest values.
        const latest = (plot, index, value) => value ?? plot.data[index].at(-1) ?? null;
        const shown = (plot, value, index) => latest(plot, index, value)?.toFixed(2) ?? "–";
        const series = (label, stroke) => ({ label, stroke, width: 2, points: { show: false }, value: shown });
        const options = {
          width: place.clientWidth,
          height: 180,
          axes: [{ ...axis, values: (_, times) => times.map(clock) }, { ...axis, size: 64 }],
          scales: { x: { range: (_, _low, high) => [high - (POINTS * INTERVAL_MS) / 1000, high] }, y: { range: (_, low, high) => [0, Math.max(high, 0.01) * 1.05] } },
          series: [{ label: "time", value: (plot, time) => ((time = latest(plot, 0, time)) === null ? "–" : clock(time)) }, series("read", color("--read")), series("write", color("--write"))],
        };
        charts.set(field, new uPlot(options, data(field), place));
      }
    }

    function show(plot, field) {
      plot.setData(data(field));
      if (!(plot.cursor.idx >= 0)) plot.setLegend({ idx: null });
    }

    function remember(name, point) {
      const points = history.get(name) ?? [];
      points.push(point);
      if (points.length > POINTS) points.shift();
      history.set(name, points);
    }

    function offer(luns) {
      const known = new Set([...chosen.options].map((option) => option.value));
      for (const lun of luns) {
        if (!known.has(nameOf(lun))) chosen.add(new Option(nameOf(lun), nameOf(lun)));
      }
    }

    function list(rows) {
      const body = byId("busiest");
      const digits = (value) => (value === null ? "–" : value === Infinity ? "more" : value.toFixed(value < 10 ? 2 : 0));
      const mean = ({ read, write }) => {
        const count = read.count + write.count;
        return count ? ((read.latency ?? 0) * read.count + (write.latency ?? 0) * write.count) / count : null;
      };
      const busiest = rows.sort((a, b) => b.read.commands + b.write.commands - a.read.commands - a.write.commands).slice(0, BUSIEST);
      body.replaceChildren(
        ...busiest.map(({ lun, read, write }) => {
          const row = document.createElement("tr");
          const within = read.within === null && write.within === null ? null : Math.max(read.within ?? 0, write.within ?? 0);
          const cells = [lun.target, lun.lun, digits(read.bytes), digits(write.bytes), digits(read.commands), digits(write.commands), digits(mean({ read, write })), digits(within)];
          row.append(
            ...cells.map((text, index) => {
              const cell = document.createElement("td");
              if (index > 1) cell.className = "number";
              cell.textContent = text;
              return cell;
            }),
          );
          return row;
        }),
      );
      labelCells(body.closest("table"));
    }

    async function read() {
      const response = await fetch(section.dataset.numbers, { headers: { "HX-Request": "true" } });
      if (response.status === 401) return location.assign("/console/login");
      if (!response.ok) return;
      const now = await response.json();
      const before = last;
      last = now;
      // A restarted server counts from zero again.
      if (!before || now.time_ms <= before.time_ms) return;
      const seconds = (now.time_ms - before.time_ms) / 1000;
      const time = Date.now() / 1000;
      const known = new Map(before.luns.map((lun) => [nameOf(lun), lun]));
      remember("", { time, ...rates(now.all, before.all, seconds) });
      const rows = now.luns.map((lun) => ({ lun, ...rates(lun, known.get(nameOf(lun)), seconds) }));
      for (const row of rows) remember(nameOf(row.lun), { time, read: row.read, write: row.write });
      offer(now.luns);
      list(rows);
      for (const [field, plot] of charts) show(plot, field);
    }

    draw();
    chosen.addEventListener("change", () => charts.forEach(show));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    addEventListener("resize", draw);
    const again = () => {
      if (!section.isConnected) return;
      read().catch(() => tell("The server does not answer.", true)).finally(() => setTimeout(again, INTERVAL_MS));
    };
    again();
  }

  // What is on the page now, and what comes onto it later

  const begun = new WeakSet();

  function begin() {
    const all = (selector, start) => {
      for (const place of document.querySelectorAll(selector)) {
        if (!begun.has(place)) {
          begun.add(place);
          start(place);
        }
      }
    };
    all("form[data-document]", showLine);
    all("textarea[data-load]", (area) => area.setAttribute("data-load-pending", ""));
    all("[data-events]", follow);
    all("[data-numbers]", chart);
    all(".wide > table", labelCells);
    showRates();
    loadVisible();
  }

  document.addEventListener("htmx:afterSettle", begin);
  begin();
})();
