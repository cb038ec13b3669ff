// Pages in a browser: what the script builds, hover, zoom and legends. Skips where Chromium is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/report/report_runs.h"

namespace octet::report_browser_test {
namespace {

using test::ScratchFolder;
using test::write_run;
using testing::HasSubstr;

// Acts of a reader on a page, and what it shows then, a line each.
constexpr const char* kBegin = R"(<script>
window.addEventListener('load', () => {
  const lines = [], say = text => lines.push(text);
  const text = (selector, within = document) =>
    [...within.querySelectorAll(selector)].map(part => part.textContent).join('|');
  const canvasOf = plot => [...plot.querySelectorAll('canvas')].at(-1);
  const mouse = (plot, type, share, target = canvasOf(plot)) => {
    const box = canvasOf(plot).getBoundingClientRect();
    const x = box.left + box.width * share, y = box.top + box.height / 2;
    target.dispatchEvent(new MouseEvent(type, { bubbles: true, cancelable: true, view: window,
      button: 0, detail: 1, clientX: x, clientY: y, screenX: x, screenY: y }));
  };
  const tip = plot => text('.tip b, .tip .of, .tip .value, .tip .range', plot);
  const ticks = plot => text('.dygraph-axis-label-x', plot);
)";
constexpr const char* kEnd = R"(
  const pre = document.createElement('pre');
  pre.textContent = lines.concat(errors).join('\n') + '\nend';
  document.body.prepend(pre);
});
</script></body>)";

constexpr const char* kWatch = R"(<head><script>
const errors = [];
window.onerror = message => { errors.push('error ' + message); };
window.alert = message => { errors.push('alert ' + message); };
</script>)";

std::string browser() {
  for (const std::string name : {"chromium", "google-chrome", "chrome"}) {
    if (std::system(("command -v " + name + " >/dev/null 2>&1").c_str()) == 0) return name;
  }
  return "";
}

// Text that the page shows a reader, as the browser writes text: "<" as "&lt;".
std::string said(const ScratchFolder& folder, std::string html, const std::string& reader) {
  html.replace(html.find("<head>"), 6, kWatch);
  html.replace(html.rfind("</body>"), 7, kBegin + reader + kEnd);
  const std::string command =
      "timeout 60 " + browser() +
      " --headless --no-sandbox --disable-gpu --window-size=1280,900 --virtual-time-budget=3000" +
      " --user-data-dir=" + (folder / "profile") + " --dump-dom file://" +
      folder.put("watched.html", html) + " >" + (folder / "dom.html") + " 2>/dev/null </dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0);
  const std::string dom = posix_files().read_text(folder / "dom.html");
  const size_t from = dom.find("<pre>");
  if (from == dom.npos) return "the page's script did not end";
  return dom.substr(from, dom.find("</pre>") - from);
}

class Browser : public testing::Test {
 protected:
  void SetUp() override {
    if (browser().empty()) GTEST_SKIP() << "needs Chromium";
  }
  ScratchFolder folder_;
};

TEST_F(Browser, a_report_answers_a_reader) {
  const std::string runs = write_run(folder_, "a", 120) + " " + write_run(folder_, "<b>\"&", 120);
  ASSERT_EQ(test::report(folder_, runs).code, 0);
  const std::string all = said(folder_, test::page(folder_), R"(
  const plot = document.querySelectorAll('.plot')[1];
  say('label ' + plot.getAttribute('aria-label'));
  mouse(plot, 'mousemove', 0.999);
  say('hover ' + tip(plot));
  mouse(plot, 'mouseout', 0.999);
  say('out ' + plot.querySelector('.tip').style.display);
  say('all ' + ticks(plot));
  mouse(plot, 'mousedown', 0.2);
  mouse(plot, 'mousemove', 0.3, document);
  mouse(plot, 'mouseup', 0.3, document);
  say('zoomed ' + ticks(plot));
  for (const _ of [1, 2]) { mouse(plot, 'mousedown', 0.5); mouse(plot, 'mouseup', 0.5, document); }
  mouse(plot, 'dblclick', 0.5);
  say('reset ' + ticks(plot));
  [...document.querySelectorAll('.legend input')].at(-1).click();
  mouse(plot, 'mousemove', 0.999);
  say('hidden ' + tip(plot));)");
  const std::string a = folder_ / "a", odd = folder_ / "&lt;b&gt;\"&amp;";
  const std::string mean = "|0.042019|0.041667 \u2013 0.042373";  // of steps 118 to 120
  EXPECT_THAT(all, HasSubstr("label Training loss over step\n"));
  EXPECT_THAT(all, HasSubstr("hover step 120|" + a + mean + "|" + odd + mean + "\n"));
  EXPECT_THAT(all, HasSubstr("out none\n"));
  EXPECT_THAT(all, HasSubstr("all 0|20|40|60|80|100|120\n"));
  EXPECT_THAT(all, HasSubstr("zoomed 12|14|16|18|20|22|24\n"));
  EXPECT_THAT(all, HasSubstr("reset 0|20|40|60|80|100|120\n"));
  EXPECT_THAT(all, HasSubstr("hidden step 120|" + a + mean + "\nend"));
}

// One norm of 20 steps that share a point is zero: the band ends at the least that the chart shows.
TEST_F(Browser, a_report_shows_results_samples_evaluations_and_differences) {
  const std::string hostile = "<img src=x onerror=alert(1)>";
  const std::string runs =
      write_run(folder_, "a", 8'400,
                [](nlohmann::json& line) {
                  line["grad_norm"] = line.at("step").get<int>() % 20 == 0 ? 0.0 : 2.0;
                }) +
      " " + write_run(folder_, hostile, 3, [](nlohmann::json& line) { line.erase("val_loss"); });
  folder_.put(hostile + "/evaluations.jsonl",
              nlohmann::json{{"step", 1}, {"task", hostile}, {"value", 1.5}}.dump() + "\n");
  folder_.put("a/telemetry.jsonl", nlohmann::json{{"step", 10},
                                                  {"event", "edge"},
                                                  {"edge", hostile},
                                                  {"layer", -1},
                                                  {"role", "forward"},
                                                  {"dtype", "e4m3"},
                                                  {"elements", 64},
                                                  {"rms", 0x1p-9},
                                                  {"amax", 0x1p-7},
                                                  {"zeros", 0.25},
                                                  {"saturated", 0.0},
                                                  {"scale", 1.0}}
                                           .dump() +
                                       "\n");
  ASSERT_EQ(test::report(folder_, runs).code, 0);
  const std::string all = said(folder_, test::page(folder_), R"(
  say('titles ' + text('h2'));
  say('charts ' + text('figcaption'));
  const norm = document.querySelectorAll('.plot')[2];
  mouse(norm, 'mousemove', 0.5);
  say('norm ' + tip(norm));
  document.querySelectorAll('.card').forEach(card => say(text('td, .none, .heat > *', card)));
  say('best ' + document.querySelectorAll('td.best').length);
  say('cell ' + document.querySelector('.heat i').title);
  say('images ' + document.querySelectorAll('img').length);)");
  const std::string a = folder_ / "a", odd = folder_ / "&lt;img src=x onerror=alert(1)&gt;";
  EXPECT_THAT(all, HasSubstr("titles Results|Edges outside their window|Evaluations|Where the "
                             "configurations differ\n"));
  EXPECT_THAT(all, HasSubstr("charts Training loss minus "));
  EXPECT_THAT(all, HasSubstr("|1.9|1 \u2013 2\n"));
  EXPECT_THAT(all, HasSubstr("\n" + a +
                             "|unknown|8400|0.0006|0.0005|0.0005 (8400)|1000 tokens/s|3.0 MiB|no "
                             "checkpoint|0|0|" +
                             odd +
                             "|unknown|3|3.0556|none|none|1000 tokens/s|3.0 MiB|no "
                             "checkpoint|0|0\n"));
  EXPECT_THAT(all, HasSubstr("best 0\n"));
  EXPECT_THAT(all, HasSubstr("cell outside the layers, step 10: &lt;img src=x onerror=alert(1)&gt; "
                             "(e4m3), wants 2^10, zeros 0.2500, saturated 0.000000\n"));
  EXPECT_THAT(all, HasSubstr("images 0\nend")) << "no markup of a name, no error";
}

// The chart as a picture that a browser reads, not of one colour; and its values.
TEST_F(Browser, a_chart_is_saved_as_png_and_csv) {
  ASSERT_EQ(test::report(folder_, write_run(folder_, "a,b", 3)).code, 0);
  const std::string all = said(folder_, test::page(folder_), R"(
  const saved = [];
  HTMLAnchorElement.prototype.click = function() { saved.push(this); };
  document.querySelectorAll('.tools')[0].querySelectorAll('button').forEach(one => one.click());
  say('names ' + saved.map(link => link.download));
  say('csv ' + decodeURIComponent(saved[1].href.split(',').slice(1).join(',')));
  const image = new Image();
  image.src = saved[0].href;
  say('png ' + saved[0].href.slice(0, 22));
  const canvas = document.createElement('canvas');
  const plot = document.querySelector('.plot');
  [canvas.width, canvas.height] = [2 * plot.clientWidth + 64, 400];
  image.decode().then(() => {
    const context = canvas.getContext('2d');
    context.drawImage(image, 0, 0);
    const colors = new Set(new Uint32Array(
      context.getImageData(0, 0, canvas.width, canvas.height).data.buffer));
    document.title = `decoded ${image.width === canvas.width} ${colors.size > 10}`;
  });
  )");
  EXPECT_THAT(all, HasSubstr("names training_loss.png,training_loss.csv\n"));
  EXPECT_THAT(all, HasSubstr("csv name,step,value,low,high\n\"" + (folder_ / "a,b") +
                             "\",1,5,,\n\"" + (folder_ / "a,b") + "\",2,2.5,,\n"));
  EXPECT_THAT(all, HasSubstr("png data:image/png;base64,\nend"));
  EXPECT_THAT(posix_files().read_text(folder_ / "dom.html"),
              HasSubstr("<title>decoded true true</title>"));
}

// Choices of a reader are drawn: seconds on the axis, no smoothing, another run subtracted.
TEST_F(Browser, choices_redraw_the_charts_and_hidden_runs_stay_hidden) {
  const std::string runs =
      write_run(folder_, "a", 100) + " " +
      write_run(folder_, "b", 100, [](nlohmann::json& line) { line["loss"] = 2; });
  ASSERT_EQ(test::report(folder_, runs).code, 0);
  const std::string all = said(folder_, test::page(folder_), R"(
  const choose = (i, value) => {
    const select = document.querySelectorAll('select')[i];
    select.value = value;
    select.dispatchEvent(new Event('change'));
  };
  [...document.querySelectorAll('.legend input')].at(-1).click();
  choose(0, 'seconds');
  choose(1, '0');
  choose(3, '1');
  const plots = document.querySelectorAll('.plot');
  say('titles ' + plots[0].getAttribute('aria-label') + '|' + plots.length);
  mouse(plots[0], 'mousemove', 0.999);
  say('less ' + tip(plots[0]));
  mouse(plots[1], 'mousemove', 0.999);
  say('loss ' + tip(plots[1]));)");
  const std::string a = folder_ / "a";
  EXPECT_THAT(all,
              HasSubstr("titles Training loss minus " + (folder_ / "b") + " over seconds|7\n"));
  EXPECT_THAT(all, HasSubstr("less 6.4 seconds|" + a + "|-1.95\n"));
  EXPECT_THAT(all, HasSubstr("loss 6.4 seconds|" + a + "|0.05\nend"));
}

// Nothing is wider than the page but tables of configurations, which scroll in their card; and no
// cell of the results is cut.
TEST_F(Browser, at_400_pixels_nothing_is_cut) {
  const std::string runs = write_run(folder_, "a", 30) + " " + write_run(folder_, "b", 30);
  ASSERT_EQ(test::report(folder_, runs).code, 0);
  std::string html = nlohmann::json(test::page(folder_)).dump();
  for (size_t at = 0; (at = html.find("</", at)) != html.npos; ++at) html.insert(at + 1, "\\");
  const std::string all =
      said(folder_,
           "<html><head></head><body><iframe style='border:0;width:400px;"
           "height:3000px'></iframe></body></html>",
           "  const frame = document.querySelector('iframe');\n  const html = " + html + R"(;
  frame.contentDocument.write(html);
  frame.contentDocument.close();
  const inside = frame.contentDocument;
  say('page ' + (inside.documentElement.scrollWidth <= 400));
  const cut = [...inside.querySelectorAll('.stacked td, figcaption, .axis, .legend li')].filter(
    part => part.getBoundingClientRect().right > 400 || part.scrollWidth > part.clientWidth + 1);
  say('cut ' + cut.map(part => part.textContent).join('|'));
  say('cells ' + inside.querySelectorAll('.stacked td').length);)");
  EXPECT_THAT(all, HasSubstr("page true\ncut \ncells 22\nend"));
}

TEST_F(Browser, a_page_of_studies_shows_their_figures_and_tables) {
  ASSERT_EQ(test::program(folder_, "study formats --samples 1000 --out " + (folder_ / "new")).code,
            0);
  auto study = nlohmann::ordered_json::parse(posix_files().read_text(folder_ / "new/study.json"));
  const std::string hostile = "<img src=x onerror=alert(1)>";
  study["table"]["columns"][0] = hostile;
  nlohmann::ordered_json& figure = study["figures"][0];
  figure["x_title"] = figure["curves"][0]["name"] = figure["title"] = hostile;
  figure["x_names"] = {"zero", hostile, "two"};
  for (nlohmann::ordered_json& curve : figure["curves"]) curve["x"] = {0, 1, 2};
  figure["curves"][0]["y"] = {1, 2, nullptr};
  figure["curves"].erase(1);
  figure["log"] = true;
  folder_.put("odd/study.json", study.dump());
  for (nlohmann::ordered_json& one : study["figures"]) one.erase("curves");
  folder_.put("old/study.json", study.dump());
  for (const char* name : {"significand_bits.svg", "snr.svg"})
    folder_.put(std::string("old/") + name, posix_files().read_text(folder_ / "new/snr.svg"));
  ASSERT_EQ(test::program(folder_, "study report " + (folder_ / "odd") + " " + (folder_ / "old") +
                                       " --out " + (folder_ / "out"))
                .code,
            0);
  const std::string all = said(folder_, posix_files().read_text(folder_ / "out/index.html"), R"(
  const plot = document.querySelector('.plot');
  say('titles ' + text('h2'));
  say('header ' + text('th:first-child'));
  say('ticks ' + ticks(plot) + ' ' + text('.axis', plot.parentNode));
  mouse(plot, 'mousemove', 0.5);
  say('hover ' + tip(plot));
  const images = [...document.querySelectorAll('img')];
  say('images ' + images.map(image => image.naturalWidth).join(' '));)");
  EXPECT_THAT(all, HasSubstr("titles Number formats|Number formats\n"));
  const std::string odd = "&lt;img src=x onerror=alert(1)&gt;";
  const std::string end = "&lt;img src=\u2026lert(1)&gt;";
  EXPECT_THAT(all, HasSubstr("header " + odd + "|" + odd + "\n"));
  EXPECT_THAT(all, HasSubstr("ticks zero|" + end + "|two " + odd + "\n"));
  EXPECT_THAT(all, HasSubstr("hover " + odd + "|" + odd + "|2|"));
  EXPECT_THAT(all, HasSubstr("images 560 560\nend"));
}

}  // namespace
}  // namespace octet::report_browser_test
