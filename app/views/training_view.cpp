#include "app/views/training_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <string_view>

#include "app/text/format.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHeader =
    "step,stage,rate,loss,kl,held_loss,held_sparse,layer,layer_kl,recall,mass,overlap,changed";
constexpr std::size_t kStage = 1, kColumns = 13;

struct Line {
  std::string stage;
  double numbers[kColumns] = {};  // by column; the stage's is 0
};

std::vector<std::string_view> parts_of(std::string_view text, char between) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(between);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool read_line(std::string_view text, Line& line) {
  const std::vector<std::string_view> cells = parts_of(text, ',');
  if (cells.size() != kColumns) return false;
  for (std::size_t c = 0; c < kColumns; ++c) {
    if (c == kStage) continue;
    const char* end = cells[c].data() + cells[c].size();
    const auto [read, problem] = std::from_chars(cells[c].data(), end, line.numbers[c]);
    if (problem != std::errc() || read != end) return false;
  }
  line.stage = std::string(cells[kStage]);
  return true;
}

// One value a step, the same in the lines of all layers.
TrainingCurve of_steps(const std::vector<Line>& lines, std::string name, std::size_t column) {
  TrainingCurve curve{std::move(name), {}, {}};
  for (const Line& line : lines) {
    if (!curve.steps.empty() && curve.steps.back() == line.numbers[0]) continue;
    curve.steps.push_back(line.numbers[0]);
    curve.values.push_back(line.numbers[column]);
  }
  return curve;
}

// Of a measure that compares an interval with the one before: the first has none.
std::vector<TrainingCurve> without_first(std::vector<TrainingCurve> curves) {
  for (TrainingCurve& curve : curves) {
    curve.steps.erase(curve.steps.begin());
    curve.values.erase(curve.values.begin());
  }
  return curves;
}

std::vector<TrainingCurve> of_layers(const std::vector<Line>& lines, std::size_t column) {
  constexpr std::size_t kLayer = 7;
  std::map<double, TrainingCurve> curves;
  for (const Line& line : lines) {
    const double layer = line.numbers[kLayer];
    TrainingCurve& curve = curves[layer];
    curve.name = fmt::format("layer {:.0f}", layer);
    curve.steps.push_back(line.numbers[0]);
    curve.values.push_back(line.numbers[column]);
  }
  std::vector<TrainingCurve> out;
  out.reserve(curves.size());
  for (auto& [layer, curve] : curves) out.push_back(std::move(curve));
  return out;
}

}  // namespace

std::vector<TrainingTable> training_tables(const std::string& folder) {
  std::vector<TrainingTable> tables;
  std::error_code code;
  for (const auto& model : fs::directory_iterator(folder, code)) {
    for (const char* what : {"model", "indexer"}) {
      const fs::path path = model.path() / (std::string(what) + ".csv");
      if (!fs::is_regular_file(path, code)) continue;
      tables.push_back(
          {fmt::format("{} {}", model.path().filename().string(), what), path.string()});
    }
  }
  std::ranges::sort(tables, {}, &TrainingTable::name);
  return tables;
}

Result<TrainingView> training_view(const std::string& csv, const std::string& path) {
  const auto refused = [&](std::int64_t number, const std::string& what) {
    return bad_input(fmt::format("{}: line {}: {}", path, number, what),
                     "attnscope train writes such tables; --restart begins one anew");
  };
  std::vector<Line> lines;
  std::int64_t number = 0;
  for (const std::string_view text : parts_of(csv, '\n')) {
    ++number;
    if (number == 1 && text != kHeader) return refused(1, "not the head of a training's table");
    if (number == 1 || text.empty()) continue;
    Line line;
    if (!read_line(text, line)) return refused(number, fmt::format("not {} numbers", kColumns));
    lines.push_back(std::move(line));
  }
  TrainingView view;
  if (lines.empty()) {
    view.sentence = "No interval has ended yet.";
    return view;
  }
  const Line& last = lines.back();
  view.steps = static_cast<std::int64_t>(last.numbers[0]);
  view.sentence = fmt::format(
      "{}, stage {}: loss on held-out text {:.4f} nats a byte with all tokens, {:.4f} with those "
      "that the indexer selects.",
      plural(view.steps, "step", "steps"), last.stage, last.numbers[5], last.numbers[6]);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].stage == lines[i - 1].stage) continue;
    view.stages.emplace_back(lines[i - 1].numbers[0], lines[i].stage);
  }
  view.plots.push_back({"loss, nats a byte",
                        "Loss of the next byte: of what was learnt from, of held-out text with all "
                        "tokens attended, and with those alone that the indexer selects.",
                        false,
                        {of_steps(lines, "learnt from", 3), of_steps(lines, "held out", 5),
                         of_steps(lines, "held out, selected", 6)}});
  view.plots.push_back({"KL, attention to indexer",
                        "How far the indexer's shares are from those of attention, in nats: 0 = "
                        "the same. What the indexer learns from.",
                        false, of_layers(lines, 8)});
  view.plots.push_back({"recall@k",
                        "Share of the k tokens with most attention that are among the k selected.",
                        true, of_layers(lines, 9)});
  view.plots.push_back({"attention covered", "Share of all attention that lies on selected tokens.",
                        true, of_layers(lines, 10)});
  view.plots.push_back({"overlap with the token before",
                        "Share of a token's selection that the token before it selected too.", true,
                        of_layers(lines, 11)});
  view.plots.push_back({"selection changed",
                        "Share of the selection that the interval before did not have; the first "
                        "interval has none before it.",
                        true, without_first(of_layers(lines, 12))});
  return view;
}

}  // namespace attnscope
