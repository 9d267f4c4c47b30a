(() => {
  "use strict";

  // Sorts the tables that ask for it, by a button in each heading.
  for (const table of document.querySelectorAll("table[data-sortable]")) {
    const body = table.tBodies[0];
    const original = [...body.rows];
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent.trim();
      heading.replaceChildren(button);
      button.addEventListener("click", () => {
        const before = heading.getAttribute("aria-sort");
        const order = before === "ascending" ? "descending" : before === "descending" ? "" : "ascending";
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        if (order) heading.setAttribute("aria-sort", order);
        body.append(...(order ? sorted(original, column, order) : original));
      });
    });
  }

  function sorted(rows, column, order) {
    const sign = order === "ascending" ? 1 : -1;
    const value = (row) => {
      const cell = row.cells[column];
      return (cell.dataset.value ?? cell.textContent).trim();
    };
    return [...rows].sort((a, b) => {
      const x = value(a);
      const y = value(b);
      // What has no value stands last in either order.
      if (x === "" || y === "") return (x === "") - (y === "");
      return sign * x.localeCompare(y, "en", { numeric: true, sensitivity: "base" });
    });
  }

  const form = document.querySelector("form.filters");
  if (!form) return;
  const rows = [...document.querySelectorAll("#scenario-table tbody tr")];
  const shown = form.querySelector(".shown");
  const empty = document.querySelector(".empty");

  function filter() {
    const outcome = form.elements.outcome.value;
    const failed = form.elements.failed.value;
    const text = form.elements.text.value.trim().toLowerCase();
    let count = 0;
    for (const row of rows) {
      const fits =
        (!outcome || row.dataset.outcome === outcome) &&
        (!failed || row.dataset.failed.split(" ").includes(failed)) &&
        (!text || row.textContent.toLowerCase().includes(text));
      row.hidden = !fits;
      count += fits ? 1 : 0;
    }
    shown.textContent = `${count} of ${rows.length} shown`;
    empty.hidden = count > 0;
  }

  form.hidden = false;
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(filter));
  // A browser that comes back to the page keeps what was chosen.
  filter();
})();
