#include "app/cli/bench_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "app/reports/scale_report.h"
#include "app/text/say.h"
#include "engine/io/atomic_file.h"

namespace attnscope {
namespace {

struct ScaleCommand {
  ScaleOptions options;
  std::string svg;  // empty = no drawing
  bool json = false;
};

// AS_MISMATCH where the caches take other bytes than the layout report says.
Result<as_status> scale_command(const ScaleCommand& command) {
  // Before the time is spent.
  std::optional<AtomicFile> file;
  if (!command.svg.empty()) {
    Result<AtomicFile> created = AtomicFile::create(command.svg);
    if (!created) return created.error();
    file.emplace(std::move(*created));
  }
  const Result<ScaleResult> result = measure_scale(command.options);
  if (!result) return result.error();
  if (command.json) {
    say_json(scale_json(*result));
  } else {
    say("{}", Lines{scale_text(*result)});
  }
  if (file) {
    if (std::ranges::all_of(result->lines, [](const auto& l) { return l.points.empty(); })) {
      return Error{AS_NO_ENVIRONMENT, "nothing was timed, so there is nothing to draw",
                   "ask for fewer requests"};
    }
    const std::string svg = scale_svg(*result);
    if (auto ok = file->append(svg.data(), svg.size()); !ok) return ok.error();
    if (auto ok = file->commit(); !ok) return ok.error();
  }
  return result->memory_equal() ? AS_OK : AS_MISMATCH;
}

}  // namespace

void add_bench_command(CLI::App& app, std::function<Result<as_status>()>& action) {
  auto* bench = app.add_subcommand("bench", "Measurements of this program on this machine");
  bench->require_subcommand(1);
  auto* scale = bench->add_subcommand(
      "scale",
      "How a decode token's time and memory, and the block manager, grow with the context");
  auto command = std::make_shared<ScaleCommand>();
  scale->add_option("--lane", command->options.lane, "cpu or cuda (default: cuda where a GPU is)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  scale
      ->add_option("--max-context", command->options.max_context,
                   "Tokens, 4096 to 1048576 (default: all of it on a GPU, 262144 on the CPU)")
      ->check(CLI::Range(kLeastContext, kMostContext));
  scale->add_option("--requests", command->options.requests, "Of one token each (default 1)")
      ->check(CLI::Range(1, 1024));
  scale->add_option("--threads", command->options.threads, "Threads, 0 = all")
      ->check(CLI::Range(0, 4096));
  scale->add_option("--svg", command->svg, "Write a drawing of the times")
      ->check([](const std::string& text) {
        return text.empty() ? std::string("names no file") : std::string();
      });
  scale->add_flag("--json", command->json, "Print as JSON");
  scale->callback([=, &action] { action = [=] { return scale_command(*command); }; });
}

}  // namespace attnscope
