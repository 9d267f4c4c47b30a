"""The report pages in a real browser: as files, as they are served, by mouse and by keyboard."""

import asyncio
from pathlib import Path

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHECKS = (Path(__file__).parent / "checks.js").read_text()
SIZES = {"wide": (1280, 800), "phone": (390, 844)}
AT = "() => document.getElementById('audio').currentTime"
PAUSED = "() => document.getElementById('audio').paused"


def pages(site):
    """Every kind of page, by an address."""
    return {
        "run": site.file(),
        "passed": site.scenario("11"),
        "failed": site.scenario("14"),
        "lost": site.scenario("1"),
        "hostile": site.scenario("12"),
        "text": site.scenario("41"),
        "long": site.scenario("9"),
        "judged": site.judged,
        "served run": f"{site.served}/report.html",
        "served scenario": f"{site.served}/tau2_airline__11/report.html",
        "runs": site.home,
    }


async def test_every_page_opens_clean_fits_and_can_be_read(site, visit):
    page = await visit("about:blank")
    for name, url in pages(site).items():
        await page.goto(url)
        await page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        assert await page.evaluate("window.pwned") is None, name
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            for width, height in SIZES.values():
                await page.set_viewport_size({"width": width, "height": height})
                wide = await page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, (name, wide)
                assert await page.evaluate(CHECKS) == [], (name, width, scheme)
            background = await page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (background == "rgb(255, 255, 255)") == (scheme == "light")


async def until(page, condition):
    """Waits for a condition; the page's own policy forbids the browser's way of waiting."""
    deadline = asyncio.get_running_loop().time() + 20
    while not await page.evaluate(condition):
        assert asyncio.get_running_loop().time() < deadline, condition
        await asyncio.sleep(0.03)


async def loaded(page):
    """Waits for the recording's length."""
    await until(page, "document.getElementById('audio').readyState >= 1")
    return await page.evaluate("document.getElementById('audio').duration")


async def reach(page, wanted, most=200):
    """Presses Tab until an element has the focus; returns how often. Each stop must be seen."""
    for presses in range(1, most + 1):
        await page.keyboard.press("Tab")
        seen = await page.evaluate(
            """(wanted) => {
              const at = document.activeElement;
              const style = getComputedStyle(at);
              const box = at.getBoundingClientRect();
              return {
                outline: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
                inside: box.bottom > 0 && box.top < innerHeight,
                name: at.outerHTML.slice(0, 100),
                body: at === document.body,
                there: at.matches(wanted),
              };
            }""",
            wanted,
        )
        assert seen["body"] or (seen["outline"] and seen["inside"]), seen
        if seen["there"]:
            return presses
    raise AssertionError(f"{wanted} is not reached in {most} presses")


@pytest.mark.parametrize(("where", "size"), [("passed", "phone"), ("served scenario", "wide")])
async def test_the_player_is_worked_by_keyboard_alone(site, visit, where, size):
    page = await visit(pages(site)[where], *SIZES[size])
    assert await loaded(page) == pytest.approx(14.0, abs=0.05)
    assert await reach(page, ".skip", 1) == 1
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.activeElement.id") == "main"
    await reach(page, "#play")
    await page.keyboard.press("Space")
    await until(page, "document.getElementById('audio').currentTime > 0.05")
    await until(page, "document.getElementById('play').ariaLabel === 'Pause'")
    await page.keyboard.press("Enter")
    await until(page, "document.getElementById('audio').paused")
    await until(page, "document.getElementById('play').ariaLabel === 'Play'")

    await reach(page, "#seek")
    await page.keyboard.press("Home")
    await until(page, "document.getElementById('audio').currentTime === 0")
    await page.keyboard.press("ArrowRight")
    assert await page.evaluate(AT) == pytest.approx(5.0, abs=0.01)
    assert await page.get_attribute("#seek", "aria-valuenow") == "5.0"
    assert await page.get_attribute("#seek", "aria-valuetext") == "0:05.0 of 0:14.0"
    # The caller speaks from 3 to 6 s, and its turn is shown as the current one.
    assert await page.eval_on_selector_all(
        ".line[aria-current]", "all => all.map(line => line.id)"
    ) == ["turn-2"]
    await page.keyboard.press("End")
    assert await page.evaluate(AT) == pytest.approx(14.0, abs=0.05)
    await page.keyboard.press("PageDown")
    assert await page.evaluate(AT) == 0
    await page.keyboard.press("Space")
    await until(page, "document.getElementById('audio').currentTime > 0.05")
    await page.keyboard.press("Space")
    await until(page, "document.getElementById('audio').paused")

    await reach(page, "#turn-1 [data-seek]")
    await reach(page, "#turn-2 [data-seek]")
    await page.keyboard.press("Enter")
    await until(page, "document.getElementById('audio').currentTime > 3.05")
    assert not await page.evaluate(PAUSED)
    await page.keyboard.press("Enter")
    await reach(page, "#call-1 summary")
    assert not await page.is_visible("#call-1 pre")
    await page.keyboard.press("Enter")
    assert await page.is_visible("#call-1 pre")
    await reach(page, "#call-1 pre")
    await reach(page, "#files a")


async def test_a_click_on_the_waveform_seeks(site, visit):
    page = await visit(site.scenario("11"))
    length = await loaded(page)
    box = await page.locator("#seek").bounding_box()
    await page.locator("#seek").click(position={"x": box["width"] / 2, "y": 20})
    assert await page.evaluate(AT) == pytest.approx(length / 2, abs=0.1)
    head = await page.get_attribute("#head", "x1")
    assert float(head.rstrip("%")) == pytest.approx(50, abs=1)
    # A drag goes on, also outside.
    await page.mouse.move(box["x"] + 10, box["y"] + 20)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] + 200, box["y"] + 300)
    await page.mouse.up()
    assert await page.evaluate(AT) == pytest.approx(length, abs=0.1)
    await page.select_option("#zoom", "4")
    wide = await page.evaluate("document.getElementById('wave').clientWidth")
    assert wide == pytest.approx(4 * box["width"], rel=0.01)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 1280


async def test_the_outline_has_the_caller_above_and_the_agent_below(site, visit):
    page = await visit(site.scenario("11"))
    tops = await page.eval_on_selector_all(
        ".sound", "all => all.map(path => [path.classList[1], path.getBoundingClientRect().top])"
    )
    assert [name for name, _ in sorted(tops, key=lambda item: item[1])] == ["s-user", "s-agent"]
    # The sound is where the turns are: on the same scale of time.
    edges = await page.evaluate(
        """() => [".t-user", ".s-user"].map((selector) => Math.min(
          ...[...document.querySelectorAll(selector)].map((e) => e.getBoundingClientRect().left)
        ))"""
    )
    first_turn, first_sound = edges
    wide = await page.evaluate("document.getElementById('wave').clientWidth")
    assert first_turn - first_sound == pytest.approx(wide * 3 / 14, abs=2)


async def test_a_call_in_text_has_a_time_line_and_no_player(site, visit):
    page = await visit(site.scenario("41"), 390, 844)
    assert await page.locator("audio").count() == 0
    assert await page.locator("#play, #seek").count() == 0
    assert "no recording" in await page.inner_text("#call")
    await page.locator("[data-turn='5']").click()
    await until(
        page,
        "(() => { const b = document.getElementById('turn-5').getBoundingClientRect();"
        " return b.top >= 0 && b.bottom <= innerHeight })()",
    )


async def rows(page):
    return await page.eval_on_selector_all(
        "#scenario-table tbody tr:not([hidden]) th", "all => all.map(cell => cell.innerText)"
    )


async def test_scenarios_are_filtered_sorted_and_opened(site, visit):
    page = await visit(f"{site.served}/report.html")
    everything = await rows(page)
    assert len(everything) == 7
    await page.select_option("[name=outcome]", "failed")
    failed = await rows(page)
    assert failed == ["tau2_airline__14", "tau2_airline__12"]
    assert await page.inner_text(".shown") == "2 of 7 shown"
    await page.select_option("[name=failed]", "CLEAN_EXIT")
    assert await rows(page) == ["tau2_airline__12"]
    await page.fill("[name=text]", "no such thing")
    assert await rows(page) == []
    assert await page.is_visible(".empty")
    await page.click("button[type=reset]")
    await until(page, "document.querySelector('.shown').textContent === '7 of 7 shown'")
    assert await rows(page) == everything

    await reach(page, "#scenario-table th button")
    await page.keyboard.press("Enter")
    by_name = [f"tau2_airline__{n}" for n in (1, 5, 9, 11, 12, 14, 41)]
    assert await rows(page) == by_name
    assert await page.get_attribute("#scenario-table th >> nth=0", "aria-sort") == "ascending"
    await page.keyboard.press("Enter")
    assert await rows(page) == by_name[::-1]
    await page.keyboard.press("Enter")
    assert await rows(page) == everything
    length = page.locator("#scenario-table th button", has_text="Length")
    await length.click()
    assert (await rows(page))[-2:] == ["tau2_airline__9", "tau2_airline__5"]  # No value: last.
    await length.click()
    assert (await rows(page))[0] == "tau2_airline__9"
    assert (await rows(page))[-1] == "tau2_airline__5"

    await page.click("text=tau2_airline__11")
    await page.wait_for_url("**/tau2_airline__11/report.html")
    await loaded(page)
    await page.click("nav a >> text=Run run-1")
    await page.wait_for_url("**/runs/run-1/report.html")


async def test_the_list_of_runs_leads_to_the_run_and_files_open(site, visit):
    page = await visit(site.home)
    await page.click("text=run-1")
    await page.wait_for_url("**/runs/run-1/report.html")
    await page.click("text=all_metrics.json")
    await page.wait_for_url("**/all_metrics.json")
    assert "summary_version" in await page.inner_text("body")


async def test_a_quote_leads_to_its_turn(site, visit):
    page = await visit(site.judged)
    assert "does not hold" in await page.inner_text("#assertion-1")
    await page.click("#assertion-1 a")
    assert page.url.endswith("#turn-1")
    box = await page.locator("#turn-1").bounding_box()
    assert 0 <= box["y"] < 800


async def test_pages_work_without_script_and_on_paper(site, visit):
    page = await visit(site.scenario("11"), java_script_enabled=False)
    assert await page.locator("audio[controls]").is_visible()
    assert not await page.locator("#play").is_visible()
    assert "GV1N64" in await page.inner_text("#turn-2")
    run = await visit(site.file(), java_script_enabled=False)
    assert await run.locator("#scenario-table tbody tr").count() == 7
    assert not await run.locator("form.filters").is_visible()
    paper = await visit(site.scenario("11"))
    await paper.emulate_media(media="print")
    for selector in (".controls", ".toc", "#seek", ".skip"):
        assert not await paper.locator(selector).is_visible(), selector
    assert await paper.locator("#turn-1").is_visible()


async def test_pages_are_the_same_again_and_stale_ones_are_made_anew(site, visit):
    stored = site.folder / "run-1/tau2_airline__14/report.html"
    before = stored.read_text()
    url = f"{site.served}/tau2_airline__14/report.html"
    served = await visit(url)
    answer = await served.request.get(url)
    assert await answer.text() == before
    metrics = stored.with_name("metrics.json")
    original = metrics.read_text()
    metrics.write_text(original.replace('"stop_detail": ""', '"stop_detail": "seen anew"'))
    try:
        again = await visit(url)
        assert "Seen anew." in await again.inner_text("#signals")
    finally:
        metrics.write_text(original)
