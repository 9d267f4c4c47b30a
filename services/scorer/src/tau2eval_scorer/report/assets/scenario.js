(() => {
  "use strict";

  const wave = document.getElementById("wave");
  const length = Number(wave.dataset.length);
  const audio = document.getElementById("audio");

  // A click on a turn or a tool call shows it. With a recording the slider lies above them and seeks.
  wave.addEventListener("click", (event) => {
    const { turn, call } = event.target.dataset;
    const line = turn ? `turn-${turn}` : call ? `call-${call}` : "";
    if (line) document.getElementById(line).scrollIntoView({ block: "center" });
  });
  if (!audio) return;

  const play = document.getElementById("play");
  const seek = document.getElementById("seek");
  const head = document.getElementById("head");
  const now = document.getElementById("now");
  const follow = document.getElementById("follow");
  const scroller = document.getElementById("wave-scroll");
  const status = document.getElementById("player-status");
  const turns = [...document.querySelectorAll(".turn-line")].map((line) => ({
    line,
    start: Number(line.dataset.start),
    end: Number(line.dataset.end),
    mark: wave.querySelector(`[data-turn="${line.id.slice(5)}"]`),
  }));
  let frame = 0;

  audio.controls = false;
  document.querySelector(".controls").hidden = false;
  document.querySelector(".hint").hidden = false;
  seek.hidden = false;

  function clock(seconds) {
    const tenths = Math.round(seconds * 10);
    const rest = tenths % 600;
    return `${Math.floor(tenths / 600)}:${String(Math.floor(rest / 10)).padStart(2, "0")}.${rest % 10}`;
  }

  function inView() {
    if (wave.clientWidth <= scroller.clientWidth) return;
    const at = (wave.clientWidth * audio.currentTime) / length;
    const left = scroller.scrollLeft;
    if (at < left || at > left + scroller.clientWidth) scroller.scrollLeft = at - scroller.clientWidth / 4;
  }

  function show() {
    const at = Math.min(audio.currentTime, length);
    const place = `${length ? (100 * at) / length : 0}%`;
    head.setAttribute("x1", place);
    head.setAttribute("x2", place);
    now.textContent = clock(at);
    seek.setAttribute("aria-valuenow", at.toFixed(1));
    seek.setAttribute("aria-valuetext", `${clock(at)} of ${clock(length)}`);
    for (const turn of turns) {
      const current = at >= turn.start && at < turn.end;
      if (current === turn.line.hasAttribute("aria-current")) continue;
      turn.mark.classList.toggle("now", current);
      if (current) turn.line.setAttribute("aria-current", "true");
      else turn.line.removeAttribute("aria-current");
      if (current && follow.checked && !audio.paused) turn.line.scrollIntoView({ block: "center" });
    }
  }

  function run() {
    show();
    inView();
    frame = audio.paused ? 0 : requestAnimationFrame(run);
  }

  function jump(seconds) {
    audio.currentTime = Math.min(Math.max(seconds, 0), audio.duration || length);
    show();
    inView();
  }

  function start() {
    audio.play().catch((error) => {
      // A pause right after is no fault.
      if (error.name !== "AbortError") status.textContent = "The recording cannot be played.";
    });
  }

  function toggle() {
    if (audio.paused) start();
    else audio.pause();
  }

  play.addEventListener("click", toggle);
  document.getElementById("speed").addEventListener("change", (event) => {
    audio.playbackRate = Number(event.target.value);
  });
  document.getElementById("zoom").addEventListener("change", (event) => {
    wave.style.width = `${100 * Number(event.target.value)}%`;
    inView();
  });
  for (const kind of ["play", "pause", "ended"]) {
    audio.addEventListener(kind, () => {
      play.classList.toggle("playing", !audio.paused);
      play.setAttribute("aria-label", audio.paused ? "Play" : "Pause");
      if (!frame) run();
    });
  }
  audio.addEventListener("timeupdate", show);
  audio.addEventListener("seeked", show);
  audio.addEventListener("error", () => {
    status.textContent = "The recording cannot be loaded.";
  });

  for (const button of document.querySelectorAll("[data-seek]")) {
    button.addEventListener("click", () => {
      jump(Number(button.dataset.seek));
      start();
    });
  }

  function pointed(event) {
    const box = seek.getBoundingClientRect();
    jump((length * (event.clientX - box.left)) / box.width);
  }
  seek.addEventListener("pointerdown", (event) => {
    seek.setPointerCapture(event.pointerId);
    pointed(event);
  });
  seek.addEventListener("pointermove", (event) => {
    if (seek.hasPointerCapture(event.pointerId)) pointed(event);
  });

  const steps = {
    ArrowLeft: -5, ArrowDown: -5, ArrowRight: 5, ArrowUp: 5,
    PageDown: -30, PageUp: 30, Home: -Infinity, End: Infinity,
  };
  seek.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === " " || event.key === "Enter") toggle();
    else if (event.key in steps) jump(audio.currentTime + steps[event.key]);
    else return;
    event.preventDefault();
  });
  show();
})();
