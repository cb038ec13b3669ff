#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <set>

#include "base/error.h"

namespace octet::text_chat_template_test {
namespace {

const std::string kShared = std::string(OCTET_TEST_DATA) + "/data/chat_templates";
const std::string kFixtures = OCTET_SOURCE_DIR "/tests/fixtures/templates/cases.json";

// Friday 2024-07-26 12:34:56.
std::tm clock() {
  std::tm time{};
  strptime("2024-07-26T12:34:56", "%Y-%m-%dT%H:%M:%S", &time);
  return time;
}

std::string render(const std::string& source, const std::string& variables = "{}") {
  return jinja::Template(source)
      .render(parse_ordered_json(variables, "variables"), {.clock = clock()})
      .text;
}

std::string failure(const std::string& source, const std::string& variables = "{}") {
  try {
    return "no failure: " + render(source, variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_data);
    return error.what();
  }
}

struct Outcome {
  std::string suffix, bytes;  // as the shared goldens are named
};

Outcome outcome(const ChatTemplate& chat, const OrderedJson& context) {
  try {
    return {".txt", chat.render(context, clock())};
  } catch (const jinja::TemplateRefusal& refusal) {
    return {".error", refusal.message()};
  } catch (const Error&) {
    return {".fail", ""};
  }
}

TEST(ChatTemplates, equal_every_golden) {
  const Files& files = posix_files();
  if (!files.exists(kShared)) GTEST_SKIP() << "no shared data in " << OCTET_TEST_DATA;
  const OrderedJson contexts =
      parse_ordered_json(files.read_text(kShared + "/contexts.json"), "contexts.json");
  int n_goldens = 0;
  for (const DirectoryEntry& folder : files.list(kShared + "/golden")) {
    const ChatTemplate chat(
        find_chat_template(files, kShared + "/templates/" + folder.name + ".jinja", false));
    for (const OrderedJson& context : contexts) {
      const std::string stem =
          kShared + "/golden/" + folder.name + "/" + context["name"].get<std::string>();
      const Outcome got = outcome(chat, context);
      ++n_goldens;
      ASSERT_TRUE(files.exists(stem + got.suffix)) << stem << got.suffix << "\n" << got.bytes;
      if (got.suffix != ".fail") {
        EXPECT_EQ(got.bytes, files.read_text(stem + got.suffix)) << stem;
      }
      if (!files.exists(stem + ".mask.json")) continue;
      ++n_goldens;
      const OrderedJson mask = parse_ordered_json(files.read_text(stem + ".mask.json"), "mask");
      EXPECT_EQ(OrderedJson(chat.assistant_spans(context, clock())), mask["utf8_spans"]) << stem;
    }
  }
  EXPECT_EQ(n_goldens, 1646);
}

TEST(ChatTemplates, equal_jinja_in_each_construct) {
  const OrderedJson all = parse_ordered_json(posix_files().read_text(kFixtures), kFixtures);
  OrderedJson context = all["variables"];
  context["messages"] = OrderedJson::array();
  for (const OrderedJson& one : all["cases"]) {
    const std::string construct = one["construct"].get<std::string>();
    Outcome got{"refused at parsing", ""};
    try {
      got = outcome(ChatTemplate({one["template"].get<std::string>(), construct}), context);
    } catch (const Error& error) {
      got.bytes = error.what();
    }
    const bool fails = one.contains("fails"), raises = one.contains("raised");
    EXPECT_EQ(got.suffix, fails ? ".fail" : raises ? ".error" : ".txt") << construct << got.bytes;
    if (fails) continue;
    EXPECT_EQ(got.bytes, one[raises ? "raised" : "text"].get<std::string>()) << construct;
  }
}

// The words in backticks of the table's row of this kind.
std::set<std::string> documented(const std::string& page, const std::string& kind) {
  std::set<std::string> names;
  const size_t begin = page.find("\n| " + kind + " |");
  if (begin == std::string::npos) return names;
  const std::string row = page.substr(begin + 1, page.find('\n', begin + 1) - begin);
  for (size_t at = row.find('`'); at != std::string::npos; at = row.find('`', at + 1)) {
    const size_t end = row.find('`', at + 1);
    names.insert(row.substr(at + 1, end - at - 1));
    at = end;
  }
  return names;
}

TEST(ChatTemplates, support_what_the_documentation_lists) {
  const std::string page = posix_files().read_text(OCTET_SOURCE_DIR "/docs/chat_templates.md");
  std::map<std::string, std::set<std::string>> tested;
  const OrderedJson all = parse_ordered_json(posix_files().read_text(kFixtures), kFixtures);
  for (const OrderedJson& one : all["cases"]) {
    const std::string construct = one["construct"].get<std::string>();
    const size_t colon = construct.find(':');
    tested[construct.substr(0, colon)].insert(construct.substr(colon + 1));
  }
  for (const std::string kind : {"filter", "test", "method", "function", "tag"}) {
    EXPECT_EQ(documented(page, kind), tested[kind]) << kind;
  }
}

TEST(ChatTemplates, refuse_what_is_outside_the_subset_by_name_and_line) {
  EXPECT_EQ(failure("\n{% include 'x' %}"),
            "[template] line 2: {% include %} is outside the supported subset");
  const std::string outside = " is outside the supported subset";
  for (const std::string name : {"attr", "batch", "center", "e", "format", "groupby", "reverse",
                                 "slice", "truncate", "urlize", "wordcount"}) {
    // Wherever it stands: a template is read whole before it renders.
    EXPECT_EQ(failure("{% if false %}\n{{ 1|" + name + " }}{% endif %}"),
              "[template] line 2: filter '" + name + "'" + outside);
  }
  for (const std::string name :
       {"callable", "divisibleby(2)", "gt(1)", "odd", "sameas(1)", "upper"}) {
    EXPECT_EQ(failure("{{ 1 is " + name + " }}"),
              "[template] line 1: test '" + name.substr(0, name.find('(')) + "'" + outside);
  }
  for (const std::string name : {"'{}'.format", "x.splitlines", "x.copy", "cycler", "joiner"}) {
    EXPECT_EQ(failure("\n{{ " + name + "(1) }}"),
              "[template] line 2: '" + name.substr(name.find('.') + 1) + "'" + outside);
  }
  EXPECT_EQ(failure("{{ '%s' % 1 }}"), "[template] line 1: text % values" + outside);
  EXPECT_THAT(failure("{{ +'a' }}"), testing::StartsWith("[template] line 1"));
  EXPECT_EQ(failure("{{ s % 1 }}", R"({"s": "%s"})"), "[template] line 1: text % values" + outside);
  EXPECT_EQ(failure("{% macro f() %}{{ varargs }}{% endmacro %}"),
            "[template] line 1: 'varargs' of a macro" + outside);
  for (const std::string tag : {"block b", "with x = 1", "print 1", "raw"}) {
    EXPECT_EQ(failure("\n{% " + tag + " %}"),
              "[template] line 2: {% " + tag.substr(0, tag.find(' ')) + " %}" + outside);
  }
  EXPECT_EQ(failure("{% for x in [] recursive %}{% endfor %}"),
            "[template] line 1: {% for recursive %}" + outside);
  EXPECT_EQ(failure("\n{{ 2 ** 3 }}"), "[template] line 2: **" + outside);
  EXPECT_EQ(failure("{{ dict(**{}) }}"), "[template] line 1: **" + outside);
  EXPECT_EQ(failure("\n{{ f(*[1], *[2]) }}"),
            "[template] line 2: expected argument '*' once, got it twice");
  EXPECT_EQ(failure("{{ f(*[1], 2) }}"),
            "[template] line 1: arguments of a call are in the wrong order");
  EXPECT_EQ(failure("\n{{ dict(*range(1001)) }}"),
            "[template] line 2: a call takes at most 1000 arguments, got 1001");
  for (const std::string number : {"0x1f", "1_000", "0b1"}) {
    EXPECT_EQ(failure("{{ " + number + " }}"),
              "[template] line 1: numbers that are not decimal are outside the supported subset");
  }
  for (const std::string escape : {"\\N{DASH}", "\\U0001F600", "\\101"}) {
    EXPECT_EQ(failure("{{ '" + escape + "' }}"),
              "[template] line 1: this escape in a string" + outside);
  }
  for (const std::string name : {"cycle", "changed", "depth", "depth0"}) {
    EXPECT_EQ(failure("{% for x in [1] %}\n{{ loop." + name + " }}{% endfor %}"),
              "[template] line 2: loop." + name + outside);
  }
  EXPECT_EQ(failure("{{ [1]|select('gt', 0)|list }}"), "[template] line 1: test 'gt'" + outside);
  EXPECT_EQ(failure("{{ []|sort(attribute='a,b') }}"),
            "[template] line 1: sort by several attributes" + outside);
  EXPECT_EQ(failure("{{ range(3) }}"), "[template] line 1: printing a range" + outside);
  for (const std::string view : {"items", "keys", "values"}) {
    EXPECT_EQ(failure("{{ {}." + view + "() }}"),
              "[template] line 1: printing a dict_" + view + outside);
  }
  EXPECT_EQ(failure("{{ ['a'|safe] }}"),
            "[template] line 1: text marked safe within a list" + outside);
  EXPECT_EQ(failure("{{ ('a'|safe).join(['<']) }}"),
            "[template] line 1: join() of text marked safe" + outside);
  EXPECT_EQ(failure("{{ 'a'.replace('', 'b') }}"),
            "[template] line 1: replacing empty text" + outside);
  EXPECT_EQ(failure("{{ {(1, 2): 3} }}"), "[template] line 1: a tuple as a key" + outside);
  EXPECT_EQ(failure("{{ strftime_now('%f') }}"), "[template] line 1: strftime_now: %f" + outside);
  EXPECT_EQ(failure("{{ 'a'.startswith(('a', 'b')) }}"),
            "[template] line 1: startswith expected text, got tuple");
  EXPECT_EQ(failure("{{ 'ab'.find('b', 1) }}"),
            "[template] line 1: find() expected at most 1 arguments, got 2");
  EXPECT_EQ(failure("{{ 'straße'|upper }}"), "[template] line 1: the case of 'ß'" + outside);
  EXPECT_EQ(failure("{{ 'ΑΣ'.lower() }}"), "[template] line 1: the case of 'Σ'" + outside);
  EXPECT_EQ(render("{{ 'straße'|lower }}{{ 'éñδ'|upper }}"), "straßeÉÑΔ");
  EXPECT_EQ(failure("{{ 1 }}\n{{ 1|nonsense }}"), "[template] line 2: filter 'nonsense'" + outside);
  EXPECT_EQ(failure("{% if true %}\n{{ 1 is odder }}{% endif %}"),
            "[template] line 2: test 'odder'" + outside);
  EXPECT_EQ(render("{% if false %}{{ 1|nonsense }}{% endif %}"), "");
  EXPECT_EQ(failure("{% autoescape true %}{% endautoescape %}"),
            "[template] line 1: {% autoescape %} is outside the supported subset");
  EXPECT_EQ(failure("{{ 9223372036854775807 + 1 }}"),
            "[template] line 1: integers beyond 64 bits are outside the supported subset");
}

// Jinja ends such a template; here each item is looked at once.
TEST(ChatTemplates, look_ahead_in_a_loop_from_its_own_test) {
  const std::string text =
      "{% set ns = namespace(l=none, done=false) %}"
      "{% macro f() %}{% if ns.l and not ns.done %}{% set ns.done = true %}{{ ns.l.length }}"
      "{% endif %}x{% endmacro %}"
      "{% for i in [1, 2, 3] if f() %}{% set ns.l = loop %}{{ loop.last }}{% endfor %}";
  EXPECT_EQ(render(text), "FalseFalseTrue");
}

// Text of a template within these limits, or why it is beyond them.
std::string within(const jinja::Limits& limits, const std::string& source) {
  try {
    return jinja::Template(source, limits)
        .render(OrderedJson::object(), {.clock = clock(), .limits = limits})
        .text;
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ChatTemplates, are_bounded_in_time_and_memory) {
  using testing::HasSubstr;
  const std::string loops =
      "{% for a in range(9) %}{% for b in range(9) %}{% endfor %}{% endfor %}";
  EXPECT_THAT(within({.max_steps = 100}, loops), HasSubstr("at most 100 steps"));
  EXPECT_EQ(within({.max_steps = 2000}, loops), "");
  EXPECT_EQ(within({.max_source_bytes = 9}, "123456789"), "123456789");
  EXPECT_THAT(within({.max_source_bytes = 9}, "1234567890"), HasSubstr("at most 9 bytes, got 10"));
  EXPECT_EQ(within({.max_text_bytes = 20}, "{{ 'x' * 20 }}"), std::string(20, 'x'));
  EXPECT_THAT(within({.max_text_bytes = 20}, "{{ 'x' * 21 }}"), HasSubstr("at most 20 bytes"));
  const std::string doubled =
      "{% set ns = namespace(x='ab') %}{% for i in range(6) %}{% set ns.x = ns.x + ns.x %}"
      "{% endfor %}{{ ns.x|length }}";
  EXPECT_EQ(within({.max_text_bytes = 128}, doubled), "128");
  EXPECT_THAT(within({.max_text_bytes = 127}, doubled), HasSubstr("at most 127 bytes"));
  const std::string list = "{% set a = range(200)|list %}{{ a|length }}";
  EXPECT_EQ(within({}, list), "200");
  EXPECT_THAT(within({.max_memory = 1000}, list), HasSubstr("1000 bytes of memory"));
  const auto counts = [](int n) {
    return fmt::format("{{% for i in range({}) %}}x{{% endfor %}}", n);
  };
  EXPECT_EQ(within({.max_range = 10}, counts(10)), std::string(10, 'x'));
  EXPECT_THAT(within({.max_range = 10}, counts(11)), HasSubstr("at most 10 items"));
}

TEST(ChatTemplates, are_bounded_in_what_stands_within_each_other) {
  using testing::HasSubstr;
  const auto repeated = [](const std::string& part, int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += part;
    return text;
  };
  const auto calls = [](int n) {
    return fmt::format(
        "{{% macro f(n) %}}{{% if n %}}{{{{ f(n - 1) }}}}{{% endif %}}{{% endmacro %}}{{{{ f({}) "
        "}}}}",
        n);
  };
  EXPECT_EQ(within({.max_depth = 40}, calls(2)), "");
  EXPECT_THAT(within({.max_depth = 40}, calls(40)), HasSubstr("nested evaluations"));
  const std::string lists =
      "{% set ns = namespace(x=[]) %}{% for i in range(30) %}{% set ns.x = [ns.x] %}{% endfor %}"
      "{{ ns.x|string|length }}";
  EXPECT_EQ(within({}, lists), "62");
  EXPECT_THAT(within({.max_depth = 20}, lists), HasSubstr("nested evaluations"));
  for (const auto& [before, part, behind] :
       {std::tuple("{{ ", "(", "1"), {"{{ 1", " + 1", ""}, {"{{ ", "not ", "1"}}) {
    const auto nested = [&, before = before, part = part, behind = behind](int n) {
      const std::string closed = *part == '(' ? std::string(static_cast<size_t>(n), ')') : "";
      return before + repeated(part, n) + behind + closed + " }}";
    };
    EXPECT_THAT(within({.max_nesting = 20}, nested(3)), testing::Not(HasSubstr("nested")));
    EXPECT_THAT(within({.max_nesting = 20}, nested(30)), HasSubstr("nested too deeply")) << part;
  }
  const auto ifs = [&](int n) { return repeated("{% if true %}", n) + repeated("{% endif %}", n); };
  EXPECT_EQ(within({.max_statements = 5}, ifs(5)), "");
  EXPECT_THAT(within({.max_statements = 5}, ifs(7)), HasSubstr("nested too deeply"));
}

// Long operations are charged for by the bytes that they touch.
TEST(ChatTemplates, take_no_longer_for_a_step_whatever_they_touch) {
  const auto looped = [](const std::string& setup, const std::string& repeat) {
    return setup + "{% for i in range(99) %}{% for j in range(99) %}" + repeat +
           "{% endfor %}{% endfor %}";
  };
  const std::string big = "{% set s = 'é' * 2000 %}", text = "{% set s = 'a' * 2000 %}";
  const std::string all[] = {
      looped(big, "{% set a = s|length %}"),
      looped(big, "{% set a = s.startswith(s) %}"),
      looped(big + "{% set q = s ~ '' %}", "{% set a = s == q %}"),
      looped(big, "{% set a = 'x' in s %}"),
      looped(big, "{% set a = s[-1] %}"),
      looped(text, "{% set a = s|title %}"),
      looped(text, "{% set a = s.find('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab') %}"),
      looped(text, "{% set a = s.count('a') %}"),
      looped(text, "{% set a = s.replace('a', 'b') %}"),
      looped(text, "{% set a = s[::-1] %}"),
      looped("", "{% set a = 1.5|round(300) %}"),
      looped("{% set s = '%A' * 200 %}", "{% set a = strftime_now(s) %}"),
      looped("", "{% set a = i + j %}"),
  };
  jinja::RenderOptions options{clock(), {.max_steps = 5000}};
  const auto seconds = [&](const std::string& source) {
    const jinja::Template parsed(source);
    const std::clock_t begin = std::clock();
    for (int i = 0; i < 50; ++i)
      EXPECT_THROW(parsed.render(OrderedJson::object(), options), jinja::BudgetExceeded) << source;
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  // The measure is a loop that does nothing: machines and sanitizers differ by factors.
  const double nothing = seconds(looped("", ""));
  for (const std::string& source : all) EXPECT_LT(seconds(source), 8 * nothing) << source;
}

TEST(ChatTemplates, are_read_in_time_that_grows_with_their_size) {
  const auto seconds = [](int n) {
    std::string source;
    for (int i = 0; i < n; ++i) source += "{% set a" + std::to_string(i) + " = 1 %}";
    const std::clock_t begin = std::clock();
    jinja::Template parsed(source);
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  seconds(1000);
  EXPECT_LT(seconds(32000), 20 * seconds(4000) + 0.05);  // quadratic: 64 times as long
}

TEST(ChatTemplates, reserve_indents_of_json_before_they_are_there) {
  const std::string deep = "{{ [[[[[1]]]]]|tojson(indent='x' * 100)|length }}";
  EXPECT_EQ(within({}, deep), "2521");
  EXPECT_THAT(within({.max_text_bytes = 1000}, deep), testing::HasSubstr("text of at most"));
  // Text that macros within each other have written and not yet given counts as well.
  const std::string macros =
      "{% macro f(n) %}{{ 'x' * 100 }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}"
      "{{ f(20)|length }}";
  EXPECT_EQ(within({}, macros), "2100");
  EXPECT_THAT(within({.max_memory = 3000}, macros), testing::HasSubstr("memory"));
}

TEST(ChatTemplates, hold_themselves_without_leaks) {
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.me = ns %}"
                   "{% macro f() %}x{% endmacro %}{% set ns.f = f %}{{ ns.me.me.f() }}"),
            "x");
}

OrderedJson conversation() {
  return parse_ordered_json(
      R"({"messages": [{"role": "user", "content": "é?"}, {"role": "assistant", "content": "yes"},
          {"role": "user", "content": "so"}, {"role": "assistant", "content": "no"}]})",
      "conversation");
}

std::vector<std::string> said(const ChatTemplate& chat, const OrderedJson& context) {
  const std::string text = chat.render(context, clock());
  std::vector<std::string> parts;
  for (const auto& [begin, end] : chat.assistant_spans(context, clock())) {
    parts.push_back(text.substr(begin, end - begin));
  }
  return parts;
}

TEST(AssistantSpans, of_built_in_templates_hold_the_end_of_each_turn) {
  const ChatTemplate chatml(find_chat_template(posix_files(), "chatml", false));
  EXPECT_EQ(said(chatml, conversation()),
            (std::vector<std::string>{"yes<|im_end|>", "no<|im_end|>"}));
  OrderedJson context = conversation();
  context["eos_token"] = "</s>";
  const ChatTemplate plain(find_chat_template(posix_files(), "plain", false));
  EXPECT_EQ(plain.render(context, clock()),
            "User: é?\nAssistant: yes</s>\nUser: so\nAssistant: no</s>\n");
  EXPECT_EQ(said(plain, context), (std::vector<std::string>{"yes</s>", "no</s>"}));
}

TEST(AssistantSpans, come_from_prefixes_where_no_block_says_them) {
  const ChatTemplate chat(
      {"{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}"
       "{% if add_generation_prompt %}<assistant>{% endif %}",
       "test"});
  EXPECT_EQ(said(chat, conversation()), (std::vector<std::string>{"yes</>\n", "no</>\n"}));
}

TEST(AssistantSpans, throw_where_prefixes_do_not_decide) {
  const auto why = [](const std::string& source) {
    try {
      ChatTemplate({source, "test"}).assistant_spans(conversation(), clock());
      return std::string("no failure");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_THAT(why("{{ messages|length }}{% for m in messages %}{{ m.content }}{% endfor %}"),
              testing::HasSubstr("does not begin"));
  EXPECT_THAT(why("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"),
              testing::HasSubstr("adds nothing"));
  EXPECT_THAT(why("{% if messages|length < 4 %}{{ raise_exception('short') }}{% endif %}"),
              testing::HasSubstr("short"));
}

}  // namespace
}  // namespace octet::text_chat_template_test
