// The three things a page does by itself: the menu of small screens, light or dark, and search.
(() => {
  const root = document.body.dataset.root;
  const menu = document.getElementById("menu");
  const navigation = document.getElementById("navigation");
  menu.addEventListener("click", () => {
    const shown = navigation.classList.toggle("shown");
    menu.setAttribute("aria-expanded", String(shown));
  });
  navigation.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });

  document.getElementById("theme").addEventListener("click", () => {
    const page = document.documentElement;
    const systemIsDark = matchMedia("(prefers-color-scheme: dark)").matches;
    const isDark = page.dataset.theme ? page.dataset.theme === "dark" : systemIsDark;
    page.dataset.theme = isDark ? "light" : "dark";
    localStorage.setItem("theme", page.dataset.theme);
  });

  const MOST = 12;
  const box = document.getElementById("search");
  const found = document.getElementById("found");

  function loadIndex() {
    if (window.SEARCH || document.getElementById("index")) return;
    const script = document.createElement("script");
    script.id = "index";
    script.src = `${root}search.js`;
    script.onload = show;
    document.head.append(script);
  }

  // Every word must be somewhere. One in a heading counts for more than one in the text, and so does its beginning.
  function score(row, words) {
    const [page, heading, , text] = row.map((part) => ` ${part.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, " ")}`);
    let sum = 0;
    for (const word of words) {
      let worth = 0;
      if (heading.includes(word)) worth += heading.includes(` ${word}`) ? 12 : 3;
      if (page.includes(word)) worth += page.includes(` ${word}`) ? 4 : 1;
      if (text.includes(word)) worth += text.includes(` ${word}`) ? 2 : 1;
      if (!worth) return 0;
      sum += worth;
    }
    return sum;
  }

  function show() {
    const words = box.value.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean);
    found.replaceChildren();
    found.hidden = !words.length || !window.SEARCH;
    if (found.hidden) return;
    const rows = window.SEARCH.map((row) => [score(row, words), row]).filter(([worth]) => worth > 0);
    rows.sort((one, other) => other[0] - one[0]);
    for (const [, [page, heading, address, text]] of rows.slice(0, MOST)) {
      const link = document.createElement("a");
      link.href = root + address;
      link.textContent = heading === page ? page : `${page}: ${heading}`;
      const more = document.createElement("small");
      more.textContent = text;
      link.append(more);
      const item = document.createElement("li");
      item.append(link);
      found.append(item);
    }
    if (!rows.length) found.append("Nothing found.");
    found.querySelector("a")?.classList.add("first");
  }

  box.addEventListener("focus", loadIndex);
  box.addEventListener("input", show);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter") found.querySelector("a")?.click();
    if (event.key === "Escape") { box.value = ""; show(); box.blur(); }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement === document.body) { event.preventDefault(); box.focus(); }
  });
  document.addEventListener("click", (event) => { if (!event.target.closest(".search")) found.hidden = true; });
})();
