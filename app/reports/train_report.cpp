#include "app/reports/train_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "app/reports/train_run.h"
#include "app/wiring/trainer.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/family/models.h"
#include "engine/io/trained_models.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;
using reference::SelectionMeasure;
using reference::TrainMeasure;

constexpr std::int64_t kReportThreads = 2;

// A figure of a selection and what it is held against.
struct TrainFigure {
  const char* name;
  double SelectionMeasure::*mine;
  double SelectionMeasure::*last;
  double SelectionMeasure::*random;
};
constexpr TrainFigure kTrainFigures[] = {
    {"recall", &SelectionMeasure::recall, &SelectionMeasure::last_recall,
     &SelectionMeasure::random_recall},
    {"mass", &SelectionMeasure::mass, &SelectionMeasure::last_mass,
     &SelectionMeasure::random_mass}};

bool beats(const TrainReport& report, double SelectionMeasure::*TrainFigure::*other) {
  for (const TrainedSeed& seed : report.seeds) {
    for (const SelectionMeasure& m : seed.trained.layers) {
      for (const TrainFigure& f : kTrainFigures) {
        if (!(m.*f.mine > m.*(f.*other))) return false;
      }
    }
  }
  return true;
}

Result<TrainMeasure> measured(const ModelConfig& config, std::uint64_t seed,
                              const std::string& checkpoint,
                              const std::vector<std::int32_t>& tokens, std::int64_t length,
                              std::int64_t far, const as_threads* threads) {
  auto trainer = make_trainer(config, seed, checkpoint, kReportThreads, threads);
  if (!trainer) return trainer.error();
  return (*trainer)->measure({tokens, std::ssize(tokens) / (length + 1), length}, far);
}

// Whether a part of a training is there, and of this model.
Result<void> check_trained(const ModelConfig& config, const std::string& folder, const char* part) {
  const std::string checkpoint = folder + "/" + part;
  if (!is_checkpoint_folder(checkpoint)) {
    return bad_input(fmt::format("{}: holds no trained {}", folder, part),
                     fmt::format("attnscope train {} MODEL -o FOLDER trains it", part));
  }
  auto of = read_hf_config(checkpoint);
  if (!of) return of.error();
  if (of->family == config.family && of->layers == config.layers && of->heads == config.heads &&
      of->hidden == config.hidden && of->index_topk == config.index_topk) {
    return {};
  }
  return bad_input(fmt::format("{}: no {}", checkpoint, config.name), "say which: --model NAME");
}

// The larger one: of all tokens, or of those that see enough.
double cost_of(const TrainedSeed& s) {
  return std::max(s.trained.sparse / s.trained.dense.language,
                  s.trained.sparse_far / s.trained.dense_far);
}

}  // namespace

bool TrainReport::beats_chance() const { return beats(*this, &TrainFigure::random); }
bool TrainReport::beats_last() const { return beats(*this, &TrainFigure::last); }

double TrainReport::worst_cost() const {
  double worst = 0;
  for (const TrainedSeed& s : seeds) worst = std::max(worst, cost_of(s));
  return worst;
}

Result<std::vector<std::string>> trained_seeds(const std::string& model) {
  auto folder = trained_folder();
  if (!folder) return folder.error();
  std::vector<std::string> all;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(*folder, code)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name == model || name.starts_with(model + "-seed-");
    if (ours && is_checkpoint_folder((entry.path() / kTrainedIndexer).string())) {
      all.push_back(entry.path().string());
    }
  }
  std::ranges::sort(all);
  if (!all.empty()) return all;
  return bad_input(fmt::format("{}: no trained {} in it", *folder, model),
                   fmt::format("train it: attnscope train model {0}, then attnscope train indexer "
                               "{0}; or name the folder",
                               model));
}

Result<TrainReport> train_report(const std::string& model, const std::vector<std::string>& folders,
                                 const TrainReportOptions& options, const as_threads* threads) {
  auto config = trainable_model(model);
  if (!config) return config.error();
  const std::int64_t length =
      options.length > 0 ? options.length : default_plan(kTrainedModel, *config).length;
  auto far = far_entries(*config, length);
  if (!far) return far.error();
  auto text = read_train_text(options.text, length);
  if (!text) return text.error();
  const auto tokens = held_batch(*text, options.sequences, length);
  TrainReport report;
  report.model = model;
  report.topk = config->index_topk;
  report.far = *far;
  report.entry = selected_tokens(*config);
  report.length = length;
  report.sequences = std::ssize(tokens) / (length + 1);
  report.held = text->held_bytes();
  for (int i = 0; i < config->num_layers(); ++i) {
    if (layer_selects(*config, i)) {
      report.layers.push_back(config->layers[static_cast<std::size_t>(i)]);
    }
  }
  for (const std::string& folder : folders) {
    for (const char* part : {kTrainedModel, kTrainedIndexer}) {
      if (auto ok = check_trained(*config, folder, part); !ok) return ok.error();
    }
  }
  auto own = measured(*config, 1, "", tokens, length, *far, threads);
  if (!own) return own.error();
  report.untrained = own->dense.language;
  for (const std::string& folder : folders) {
    TrainedSeed& seed = report.seeds.emplace_back();
    seed.folder = folder;
    for (const auto& [part, to] :
         {std::pair{kTrainedModel, &seed.before}, std::pair{kTrainedIndexer, &seed.trained}}) {
      auto seen = measured(*config, 1, folder + "/" + part, tokens, length, *far, threads);
      if (!seen) return seen.error();
      *to = std::move(*seen);
    }
  }
  return report;
}

std::string train_report_text(const TrainReport& r) {
  std::string out = fmt::format(
      "{}, held-out text: {} sequences of {} bytes (of {} held out); figures of selections: tokens "
      "that see {} {} or more, of which {} are selected\n",
      r.model, r.sequences, r.length, r.held, r.far, r.entry_name(), r.topk);
  out += fmt::format("\nlanguage loss, nats a byte; untrained model {:.4f}\n", r.untrained);
  out += fmt::format("{:<24}{:>12}{:>12}{:>12}{:>12}{:>10}\n", "training", "before: all",
                     "after: all", "selected", "untrained I", "cost");
  for (const TrainedSeed& s : r.seeds) {
    const std::string name = fs::path(s.folder).filename().string();
    out += fmt::format("{:<24}{:>12.4f}{:>12.4f}{:>12.4f}{:>12.4f}{:>9.2f}%\n", name,
                       s.before.dense.language, s.trained.dense.language, s.trained.sparse,
                       s.before.sparse, (s.trained.sparse / s.trained.dense.language - 1) * 100);
    out += fmt::format("{:<24}{:>12.4f}{:>12.4f}{:>12.4f}{:>12.4f}{:>9.2f}%\n",
                       fmt::format("  seeing {} or more", r.far), s.before.dense_far,
                       s.trained.dense_far, s.trained.sparse_far, s.before.sparse_far,
                       (s.trained.sparse_far / s.trained.dense_far - 1) * 100);
  }
  out += "cost: selected beside after: all, by the same weights\n";
  for (const TrainFigure& f : kTrainFigures) {
    const bool mass = f.mine == &SelectionMeasure::mass;
    out += fmt::format("\n{}\n{:<24}{:>6}{:>9}{:>9}{:>12}{:>9}",
                       mass ? "attention covered" : "recall@k of attention's own k", "training",
                       "layer", "chance", "last k", "untrained I", "trained");
    out += mass ? fmt::format("{:>9}\n", "best k") : "\n";
    for (const TrainedSeed& s : r.seeds) {
      for (std::size_t i = 0; i < r.layers.size(); ++i) {
        const SelectionMeasure& m = s.trained.layers[i];
        out += fmt::format("{:<24}{:>6}{:>9.3f}{:>9.3f}{:>12.3f}{:>9.3f}",
                           fs::path(s.folder).filename().string(), r.layers[i], m.*f.random,
                           m.*f.last, s.before.layers[i].*f.mine, m.*f.mine);
        out += mass ? fmt::format("{:>9.3f}\n", m.best_mass) : "\n";
      }
    }
  }
  out += fmt::format(
      "\nshare of a selection that the token before had (> 80 % is said of DSA), and "
      "KL to attention, nats\n{:<24}{:>6}{:>12}{:>9}{:>10}{:>9}\n",
      "training", "layer", "untrained I", "trained", "KL before", "after");
  for (const TrainedSeed& s : r.seeds) {
    for (std::size_t i = 0; i < r.layers.size(); ++i) {
      const SelectionMeasure &was = s.before.layers[i], &is = s.trained.layers[i];
      out += fmt::format("{:<24}{:>6}{:>11.1f}%{:>8.1f}%{:>10.3f}{:>9.3f}\n",
                         fs::path(s.folder).filename().string(), r.layers[i], was.overlap * 100,
                         is.overlap * 100, was.kl, is.kl);
    }
  }
  const auto word = [](bool holds) { return holds ? "holds" : "DOES NOT HOLD"; };
  out += fmt::format("\n{}: recall and mass above chance\n{}: recall and mass above the last {}\n",
                     word(r.beats_chance()), word(r.beats_last()), r.topk);
  out += fmt::format(
      "{}: loss with what is selected at most {:.0f} % above that of the same weights with all "
      "tokens ({:.2f} %)\n",
      word(r.worst_cost() <= TrainReport::kMostCost), (TrainReport::kMostCost - 1) * 100,
      (r.worst_cost() - 1) * 100);
  return out;
}

std::string train_report_csv(const TrainReport& r) {
  std::string out =
      "training,layer,dense_loss,trained_dense_loss,sparse_loss,untrained_sparse_loss,chance,"
      "last_recall,untrained_recall,recall,last_mass,untrained_mass,mass,best_mass,"
      "untrained_overlap,overlap,untrained_kl,kl\n";
  for (const TrainedSeed& s : r.seeds) {
    for (std::size_t i = 0; i < r.layers.size(); ++i) {
      const SelectionMeasure &was = s.before.layers[i], &is = s.trained.layers[i];
      out += fmt::format("{},{}", fs::path(s.folder).filename().string(), r.layers[i]);
      for (const double x :
           {s.before.dense.language, s.trained.dense.language, s.trained.sparse, s.before.sparse,
            is.random_mass, is.last_recall, was.recall, is.recall, is.last_mass, was.mass, is.mass,
            is.best_mass, was.overlap, is.overlap, was.kl, is.kl}) {
        out += fmt::format(",{:.6g}", x);
      }
      out += "\n";
    }
  }
  return out;
}

}  // namespace attnscope
