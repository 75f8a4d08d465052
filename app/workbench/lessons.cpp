#include "app/workbench/lessons.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "app/text/format.h"
#include "app/views/error_view.h"
#include "app/workbench/deepseek_v4/lessons.h"
#include "app/workbench/dense/lessons.h"
#include "app/workbench/mla/lessons.h"
#include "engine/family/family.h"
#include "engine/family/op_graph.h"
#include "engine/io/plural.h"

namespace attnscope {
namespace {

struct LessonsOfFamily {
  const char* family;
  std::span<const Lesson> (*lessons)();
};
constexpr LessonsOfFamily kLessons[] = {
    {"deepseek_v4", deepseek_v4_lessons}, {"dense", dense_lessons}, {"mla", mla_lessons}};

std::string which_layer(const TapResult& result) {
  return result.layer >= 0 ? fmt::format("layer {}", result.layer) : "the ops outside the layers";
}

LessonPage cell_page(const Snapshot& snapshot, const TapResult& wrong) {
  LessonPage page;
  page.title = "A red cell";
  page.panel = "timeline";
  page.commands = {"cursor.first_failure", "panel.timeline"};
  std::int64_t taps = 0, bad = 0;
  if (const StepSummary* step = snapshot.summary(wrong.step)) {
    for (const TapResult& result : step->results) {
      taps += result.verdict != Verdict::kNotCompared;
      bad += result.verdict == Verdict::kWrong;
    }
  }
  page.text = fmt::format(
      "Step {}, {}: {} of {} taps {} wrong. A column is a step, a row is a layer; every cell left "
      "of this one is as its reference.",
      wrong.step, which_layer(wrong), format_count(bad), format_count(taps),
      agree(bad, "is", "are"));
  return page;
}

LessonPage op_page(const Snapshot& snapshot, const TapResult& wrong) {
  LessonPage page;
  page.title = "The op";
  page.panel = "pipeline";
  page.commands = {"cursor.first_failure", "panel.pipeline"};
  const char* name = as_op_find(wrong.op)->name;
  page.text = fmt::format(
      "{} in {} is the first op whose output is beyond its tolerance. It was given the right "
      "inputs: everything before it agrees with its reference.",
      name, which_layer(wrong));
  std::set<as_op_id> others;
  std::int64_t right = 0;
  if (const StepSummary* step = snapshot.summary(wrong.step)) {
    for (const TapResult& result : step->results) {
      if (result.verdict == Verdict::kWrong && result.op != wrong.op) others.insert(result.op);
      right += result.verdict != Verdict::kWrong && result.verdict != Verdict::kNotCompared;
    }
  }
  if (others.empty()) {
    page.text += fmt::format(
        " The other {} taps of the step pass: each is judged on the inputs it really had, so the "
        "blame stays here.",
        format_count(right));
  }
  return page;
}

LessonPage element_page(const Snapshot& snapshot, const TapResult& wrong) {
  LessonPage page;
  page.title = "The element";
  const StepTrace* step = snapshot.trace(wrong.step);
  const OpTrace* op = step != nullptr ? step->find(wrong.layer, wrong.op) : nullptr;
  const bool rows = op != nullptr && op->cache_rows(wrong.tap) != nullptr;
  page.panel = rows ? "bytes" : "tensor";
  page.commands = {"cursor.first_failure", rows ? "panel.bytes" : "panel.tensor"};
  page.text = result_sentence(step, wrong);
  if (wrong.introduced && wrong.introduced->differing > 0) {
    page.text +=
        fmt::format(" {} of {} elements differ.", format_count(wrong.introduced->differing),
                    format_count(wrong.elements));
  }
  page.text += rows ? " Bytes has the row that was written and what the reference has in its "
                      "place; the byte is selected in all panels."
                    : " The picture shows the value, the reference and their difference; the "
                      "element is selected in all panels.";
  return page;
}

LessonPage reason_page(const Lesson& lesson) {
  LessonPage page;
  page.title = "The reason";
  page.panel = "error";
  page.commands = {"panel.error"};
  page.text = fmt::format("{}\n\nWhy here: {}\n\nIn service: {}", lesson.change, lesson.why_here,
                          lesson.in_service);
  return page;
}

}  // namespace

std::span<const Lesson> lessons(std::string_view family) {
  for (const LessonsOfFamily& one : kLessons) {
    if (family == one.family) return one.lessons();
  }
  return {};
}

std::vector<const Lesson*> lessons(const ModelConfig& config) {
  const std::shared_ptr<const ModelGraph> graph = model_graph(config);
  const auto runs = [&](as_op_id op) {
    const auto has = [op](const LayerGraph& part) { return part.find(op) != nullptr; };
    return has(graph->before) || has(graph->after) || std::ranges::any_of(graph->layers, has);
  };
  std::vector<const Lesson*> all;
  for (const Lesson& lesson : lessons(config.family)) {
    const bool shows = lesson.shows == nullptr || lesson.shows(config);
    if (shows && runs(lesson.op)) all.push_back(&lesson);
  }
  return all;
}

std::vector<const Lesson*> all_lessons() {
  std::vector<const Lesson*> all;
  for (const LessonsOfFamily& one : kLessons) {
    for (const Lesson& lesson : one.lessons()) all.push_back(&lesson);
  }
  return all;
}

const Lesson* find_lesson(std::string_view name) {
  for (const Lesson* lesson : all_lessons()) {
    if (name == lesson->name) return lesson;
  }
  return nullptr;
}

std::vector<LessonPage> lesson_pages(const Lesson& lesson, const Snapshot& snapshot,
                                     const TapResult& wrong) {
  return {cell_page(snapshot, wrong), op_page(snapshot, wrong), element_page(snapshot, wrong),
          reason_page(lesson)};
}

}  // namespace attnscope
