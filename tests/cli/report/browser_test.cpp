// The page of octet report in a browser: hover, zoom and the legend. Skips where Chromium is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/report/report_runs.h"

namespace octet {
namespace {

using test::ScratchFolder;
using test::write_run;
using testing::HasSubstr;

// What a reader does with the first chart, and what it shows then, a line each.
constexpr const char* kReader = R"(<script>
window.addEventListener('load', () => {
  const plot = document.getElementById('chart-0');
  const canvas = [...plot.querySelectorAll('canvas')].at(-1);
  const box = canvas.getBoundingClientRect(), lines = [];
  const mouse = (type, share, target = canvas) => {
    const x = box.left + box.width * share, y = box.top + box.height / 2;
    target.dispatchEvent(new MouseEvent(type, { bubbles: true, cancelable: true, view: window,
      button: 0, detail: 1, clientX: x, clientY: y, screenX: x, screenY: y }));
  };
  const say = text => lines.push(text);
  const tip = () => [...plot.querySelectorAll('.tip b, .tip .of, .tip .value')]
    .map(part => part.textContent).join('|');
  const ticks = () => [...plot.querySelectorAll('.dygraph-axis-label-x')]
    .map(label => label.textContent).join(' ');
  mouse('mousemove', 0.999);
  say('hover ' + tip());
  mouse('mouseout', 0.999);
  say('out ' + plot.querySelector('.tip').style.display);
  say('all ' + ticks());
  mouse('mousedown', 0.2); mouse('mousemove', 0.3, document); mouse('mouseup', 0.3, document);
  say('zoomed ' + ticks());
  for (const _ of [1, 2]) { mouse('mousedown', 0.5); mouse('mouseup', 0.5, document); }
  mouse('dblclick', 0.5);
  say('reset ' + ticks());
  document.querySelectorAll('.legend input')[1].click();
  mouse('mousemove', 0.999);
  say('hidden ' + tip());
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

TEST(ReportPage, answers_a_reader_in_a_browser) {
  if (browser().empty()) GTEST_SKIP() << "needs Chromium";
  const ScratchFolder folder;
  const std::string run = write_run(folder, "a", 120) + " " + write_run(folder, "<b>\"&", 120);
  ASSERT_EQ(test::report(folder, run).code, 0);
  std::string html = test::page(folder);
  html.replace(html.find("<head>"), 6, kWatch);
  html.replace(html.rfind("</body>"), 7, kReader);
  const std::string command =
      "timeout 60 " + browser() +
      " --headless --no-sandbox --disable-gpu --window-size=1280,900 --virtual-time-budget=3000" +
      " --user-data-dir=" + (folder / "profile") + " --dump-dom file://" +
      folder.put("watched.html", html) + " >" + (folder / "dom.html") + " 2>/dev/null </dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string dom = posix_files().read_text(folder / "dom.html");
  const size_t from = dom.find("<pre>");
  ASSERT_NE(from, dom.npos) << "the page's script did not end";
  const std::string said = dom.substr(from, dom.find("</pre>") - from);
  const std::string odd = "&lt;b&gt;\"&amp;";  // as the browser writes text
  EXPECT_THAT(said, HasSubstr("hover step 120|" + (folder / "a") + "|0.041667|" + (folder / odd) +
                              "|0.041667\n"));
  EXPECT_THAT(said, HasSubstr("out none\n"));
  EXPECT_THAT(said, HasSubstr("all 0 20 40 60 80 100 120\n"));
  EXPECT_THAT(said, HasSubstr("zoomed 12 14 16 18 20 22 24\n"));
  EXPECT_THAT(said, HasSubstr("reset 0 20 40 60 80 100 120\n"));
  EXPECT_THAT(said, HasSubstr("hidden step 120|" + (folder / "a") + "|0.041667\nend"));
}

}  // namespace
}  // namespace octet
