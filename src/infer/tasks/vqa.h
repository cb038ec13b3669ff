// Questions about pictures, and how many answers of a model are right.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "infer/inference.h"
#include "infer/model_source.h"

namespace octet {

// JSON lines or a list of {image or images, question, answer or answers, type}: paths beside the
// file, a text, one or several texts of which each is right, and what sort of question it is
// (without `type`: "other").
struct PictureQuestion {
  std::vector<std::string> pictures = {};
  std::string question = {}, type = {};
  std::vector<std::string> answers = {};
};
// Throws Error{bad_data}, "[vqa] FILE:LINE: ...", for a question that is none or whose picture is
// not there, or with both names of one thing; at most `limit` of them where that is above 0. Warns
// of keys that are not read.
std::vector<PictureQuestion> read_picture_questions(const Files& files, const std::string& path,
                                                    int64_t limit = 0, const Log& log = {});

// An answer in the form that answers are compared in: lower case, without articles, apostrophes and
// punctuation (a comma or a period within a number stays out or in as the number needs it), numbers
// from zero to ten as digits, single spaces. Source: Antol et al. 2015, VQA's evaluation.
std::string vqa_answer(std::string_view answer);
bool is_right(const std::string& answer, const PictureQuestion& question);

// Answers of the model to each question, by its chat template: the most probable tokens.
struct VqaOptions {
  int64_t batch = 8, max_tokens = 200;
};
std::vector<std::string> answer_questions(const ModelSource& source,
                                          const std::vector<PictureQuestion>& questions,
                                          const VqaOptions& options, const TextMachine& machine);

}  // namespace octet
