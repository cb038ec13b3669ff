// Names of classes in a config.json, in the forms that files have.
#include <gtest/gtest.h>

#include "infer/class_names.h"

namespace octet::infer_class_names_test {
namespace {

using Names = std::vector<std::string>;

Names names(const char* text, int64_t n = 2) {
  return class_names(parse_json(text, "config.json"), n);
}

TEST(ClassNames, are_those_of_id2label_by_number) {
  EXPECT_EQ(names(R"({"id2label": {"1": "b", "0": "a"}, "label2id": {"a": 1, "b": 0}})"),
            (Names{"a", "b"}));
  EXPECT_EQ(names(R"({"id2label": {"00": "a", "01": "b"}})"), (Names{"a", "b"}));
  EXPECT_EQ(names(R"({"id2label": {"0": 1, "1": 0}})"), (Names{"1", "0"}));
  EXPECT_EQ(names(R"({"id2label": {"0": "a", "1": "a"}})"), (Names{"a", "a"}));
}

TEST(ClassNames, are_those_of_label2id_where_it_stands_alone) {
  EXPECT_EQ(names(R"({"label2id": {"a": 1, "b": "0"}})"), (Names{"b", "a"}));
  EXPECT_EQ(names(R"({"id2label": null, "label2id": {"a": 1, "b": 0}})"), (Names{"b", "a"}));
}

TEST(ClassNames, are_none_where_a_class_has_none) {
  for (const char* text :
       {"{}", R"({"id2label": {"0": "a", "2": "b"}})", R"({"id2label": {"0": "a", "1": null}})",
        R"({"id2label": ["a", "b"]})", R"({"id2label": {"0": "a", "00": "b"}})",
        R"({"id2label": {"0": "a", "x": "b"}})", R"({"label2id": {"a": 1, "b": 1}})",
        R"({"id2label": {"0": "a", "1": "b", "2": "c"}})", "[]"})
    EXPECT_EQ(names(text), Names{}) << text;
}

TEST(ClassNames, may_differ) {
  const auto differ = [](const char* text) {
    return class_names_differ(parse_json(text, "config.json"));
  };
  EXPECT_TRUE(differ(R"({"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 1, "b": 0}})"));
  EXPECT_TRUE(differ(R"({"id2label": {"0": "a", "1": "b"}, "label2id": {"A": 0, "b": 1}})"));
  EXPECT_FALSE(differ(R"({"id2label": {"0": "a", "1": "b"}, "label2id": {"b": 1, "a": 0}})"));
  EXPECT_FALSE(differ(R"({"id2label": {"0": "a", "1": "a"}, "label2id": {"a": 1}})"));
  EXPECT_FALSE(differ("{}"));
}

}  // namespace
}  // namespace octet::infer_class_names_test
