#include "app/cli/study_command.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "app/cli/look_at.h"
#include "app/cli/model_options.h"
#include "app/cli/study_picture.h"
#include "app/cli/writable.h"
#include "app/reports/cache_study.h"
#include "app/text/say.h"
#include "engine/io/json_file.h"
#include "kernels/cpu/thread_pool.h"

namespace attnscope {
namespace {

struct CacheStudyCommand {
  std::string scenario, csv, svg, png;
  CacheStudyOptions options;
  int threads = 0;
  bool json = false;
};

// Without a path nothing is asked for.
Result<void> save(const std::string& path, const std::string& text) {
  return path.empty() ? Result<void>() : write_text_file(path, text);
}

Result<as_status> study_caches(const CacheStudyCommand& c, const ModelChoice& choice) {
  const auto scenario = scenario_with_profile(c.scenario, "", choice);
  if (!scenario) return scenario.error();
  if (auto ok = check_writable("--csv", c.csv); !ok) return ok.error();
  if (auto ok = check_writable("--svg", c.svg); !ok) return ok.error();
  if (auto ok = check_writable("--png", c.png); !ok) return ok.error();
  StudyPainter paint;
  if (!c.png.empty()) {
    auto painter = study_painter();
    if (!painter) return painter.error();
    paint = std::move(*painter);
  }
  cpu::ThreadPool pool(c.threads);
  const auto study = study_cache_formats(*scenario, c.options, pool.handle());
  if (!study) return study.error();
  if (c.json) {
    say_json(cache_study_json(*study));
  } else {
    say("{}", Lines{cache_study_text(*study)});
  }
  if (auto ok = save(c.csv, cache_study_csv(*study)); !ok) return ok.error();
  if (auto ok = save(c.svg, cache_study_svg(*study)); !ok) return ok.error();
  if (paint) {
    if (auto ok = paint(*study, c.png); !ok) return ok.error();
  }
  return AS_OK;
}

}  // namespace

void add_study_command(CLI::App& app, std::function<Result<as_status>()>& action) {
  auto* studies = app.add_subcommand("study", "What choices of numbers cost a model");
  studies->require_subcommand(1);
  auto* caches = studies->add_subcommand(
      "cache-dtype", "Bytes and errors of every format of keys and values, over the length");
  auto c = std::make_shared<CacheStudyCommand>();
  auto choice = std::make_shared<ModelChoice>();
  caches->add_option("SCENARIO", c->scenario, "A scenario of dense attention, such as tiny-llama")
      ->required();
  caches->add_option("--model", choice->model,
                     "Folder of a checkpoint, a config.json or a preset, instead of its own");
  caches->add_option("--lengths", c->options.lengths, "Tokens (128,512,2048,8192,32768)")
      ->delimiter(',');
  caches->add_option("--tokens", c->options.tokens, "Looked at, the last ones of a length (16)")
      ->check(CLI::Range(1, 256));
  caches
      ->add_option("--first-tokens", c->options.first_tokens,
                   "That keep 16 bits in the last formats, 0 = no such formats (32)")
      ->check(CLI::Range(0, 1 << 24));
  caches
      ->add_option("--again", c->options.again_tokens,
                   "Most attended tokens whose keys and values are made anew in formats of their "
                   "own, 0 = no such formats (0)")
      ->check(CLI::Range(0, 1 << 24));
  caches->add_option("--csv", c->csv, "Write the numbers");
  caches->add_option("--svg", c->svg, "Write a drawing of the errors");
  caches->add_option("--png", c->png, "Write a picture of all plots; needs no display");
  caches->add_flag("--json", c->json, "Print the numbers as JSON instead of the tables");
  caches->add_option("--threads", c->threads, "Threads, 0 = all")->check(CLI::Range(0, 4096));
  caches->callback([=, &action] { action = [=] { return study_caches(*c, *choice); }; });
}

}  // namespace attnscope
