"use strict";
(function () {
  const picture = document.querySelector("svg.backstory");
  const nodes = Array.from(picture.querySelectorAll(".node"));
  const edges = Array.from(picture.querySelectorAll(".edge[data-from]"));
  const panel = document.querySelector("aside");
  const find = document.querySelector("input");
  const count = document.querySelector("output");
  const touching = new Map();
  let chosen = null;

  edges.forEach(function (edge) {
    [edge.dataset.from, edge.dataset.to].forEach(function (id) {
      if (!touching.has(id)) touching.set(id, []);
      touching.get(id).push(edge);
    });
  });

  function is(node, name) { return node.classList.contains(name); }

  // A fact's path is what became of it and of what it was made of, the updates that did it, and their threads; that of
  // an update or a thread is what was learned there, and what took the place of what.
  function path(start) {
    const lit = new Set([start]);
    const queue = [start];
    while (queue.length) {
      const node = queue.pop();
      (touching.get(node.id) || []).forEach(function (edge) {
        const kind = edge.dataset.kind;
        const other = document.getElementById(edge.dataset.from === node.id ? edge.dataset.to : edge.dataset.from);
        const kin = kind === "superseded-by" || kind === "merged-into";
        const follows = node === start || kin
          || (is(node, "fact") ? (is(start, "fact") ? is(other, "update") : false) : false)
          || (is(node, "update") ? kind === "learned-from" || is(start, "thread") : false);
        if (!follows) return;
        lit.add(edge);
        if (lit.has(other)) return;
        lit.add(other);
        if (!(is(start, "thread") ? is(other, "fact") || is(other, "section") : is(other, "thread"))) queue.push(other);
      });
    }
    return lit;
  }

  function show(lit) {
    picture.classList.toggle("quiet", lit !== null);
    nodes.concat(edges).forEach(function (item) { item.classList.toggle("lit", lit !== null ? lit.has(item) : false); });
  }

  function tell(node) {
    panel.hidden = node === null;
    nodes.forEach(function (other) { other.classList.toggle("chosen", other === node); });
    if (node === null) return;
    const whole = node.querySelector("title").textContent;
    const first = whole.indexOf("\n");
    const last = whole.lastIndexOf("\n");
    panel.querySelector("h2").textContent = whole.slice(0, first);
    panel.querySelector("p").textContent = whole.slice(first + 1, last);
    panel.querySelector("code").textContent = whole.slice(last + 1);
  }

  function choose(node) {
    chosen = node;
    tell(node);
    show(node === null ? found() : path(node));
  }

  function found() {
    const wanted = find.value.trim().toLowerCase();
    if (wanted === "") {
      count.textContent = "";
      return null;
    }
    const like = nodes.filter(function (node) {
      return node.querySelector("title").textContent.toLowerCase().includes(wanted);
    });
    count.textContent = like.length + (like.length === 1 ? " box" : " boxes");
    return new Set(like);
  }

  nodes.forEach(function (node) {
    node.addEventListener("pointerenter", function () { if (chosen === null) { show(path(node)); tell(node); } });
    node.addEventListener("pointerleave", function () { if (chosen === null) { show(found()); tell(null); } });
    node.addEventListener("click", function (event) { event.stopPropagation(); choose(node === chosen ? null : node); });
    node.addEventListener("keydown", function (event) { if (event.key === "Enter") choose(node); });
  });
  picture.addEventListener("click", function () { choose(null); });
  panel.querySelector("button").addEventListener("click", function () { choose(null); });
  document.addEventListener("keydown", function (event) { if (event.key === "Escape") choose(null); });
  find.addEventListener("input", function () { choose(null); });
}());
