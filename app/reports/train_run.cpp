#include "app/reports/train_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>

#include "app/wiring/trainer.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/export_checkpoint.h"
#include "engine/checkpoint/weight_slots.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/io/json_file.h"
#include "engine/io/json_text.h"
#include "engine/io/shell_word.h"
#include "engine/io/trained_models.h"
#include "engine/tensorfile/tensor_writer.h"
#include "kernels/cpu/codec.h"

namespace attnscope {

template <class V>
void fields(V& v, TrainRow& r) {
  v("step", r.step), v("stage", r.stage), v("rate", r.rate), v("loss", r.loss), v("kl", r.kl);
  v("held_loss", r.held_loss), v("held_sparse", r.held_sparse), v("layer", r.layer);
  v("layer_kl", r.layer_kl), v("recall", r.recall), v("mass", r.mass), v("overlap", r.overlap);
  v("changed", r.changed);
}

namespace {

namespace fs = std::filesystem;

constexpr char kStateKey[] = "attnscope.train";
constexpr double kWarming = 0.05;  // share of the model's steps in which the rate rises
constexpr double kLastRate = 0.1;  // of the model's: what it falls to

// All that later steps depend on beside the tensors.
struct TrainHead {
  std::string plan;
  std::int64_t made = 0, summed = 0;
  double loss = 0, kl = 0;
  std::vector<TrainRow> rows;
};

template <class V>
void fields(V& v, TrainHead& h) {
  v("plan", h.plan), v("made", h.made), v("summed", h.summed), v("loss", h.loss), v("kl", h.kl);
  v("rows", h.rows);
}

// What must be the same for a call that goes on.
std::string plan_words(const TrainPlan& p, const TrainText& text) {
  return fmt::format(
      "model {}, seed {}, {} + {} steps of {} x {} bytes, rates {} and {}, intervals of {} "
      "with {} sequences, {} threads, text {:016x}",
      p.model, p.seed, p.steps, p.sparse_steps, p.sequences, p.length, p.rate, p.sparse_rate,
      p.interval, p.held, p.threads, text.sum);
}

std::vector<float> floats_of(const TensorFile& file, const std::string& name,
                             std::string& missing) {
  const TensorEntry* entry = file.find(name);
  if (entry == nullptr || entry->type != ElementType::kF32) {
    missing = name;
    return {};
  }
  std::vector<float> out(static_cast<std::size_t>(entry->elements));
  std::memcpy(out.data(), entry->data, entry->bytes);
  return out;
}

Error another_state(const std::string& path, const std::string& what) {
  return bad_input(fmt::format("{}: {}", path, what),
                   "begin again with --restart, which removes what was trained there, or choose "
                   "another folder: -o FOLDER");
}

// Of two ascending lists of k entries for each token: the share of the first that the other lacks.
double changed_share(const std::vector<std::int32_t>& now, const std::vector<std::int32_t>& before,
                     std::int64_t k, std::size_t layers, std::size_t layer) {
  if (before.size() != now.size()) return 1;
  std::int64_t other = 0, all = 0;
  for (std::size_t at = 0, list = 0; at < now.size(); at += static_cast<std::size_t>(k), ++list) {
    if (list % layers != layer) continue;
    const auto from = before.begin() + static_cast<std::ptrdiff_t>(at);
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int32_t entry = now[at + static_cast<std::size_t>(i)];
      other += std::binary_search(from, from + k, entry) ? 0 : 1;
      ++all;
    }
  }
  return all == 0 ? 0 : static_cast<double>(other) / static_cast<double>(all);
}

Result<void> check_plan(const TrainPlan& p) {
  const bool good = p.steps > 0 && p.sparse_steps >= 0 && p.interval > 0 && p.sequences > 0 &&
                    p.length > 0 && p.threads > 0 && p.held > 0 && p.seed >= 0;
  if (!good) return usage_error("training: a number of steps, sequences or bytes is not positive");
  if (p.rate > 0 && p.rate < 1 && p.sparse_rate >= 0 && p.sparse_rate < 1) return {};
  return usage_error("training: a rate is not between 0 and 1");
}

}  // namespace

TrainPlan default_plan(const std::string& what, const ModelConfig& config) {
  const bool tokens = selected_tokens(config) == 1, model = what == kTrainedModel;
  TrainPlan p;
  p.what = what;
  p.model = config.name;
  p.length = tokens ? 1024 : 2304;
  p.steps = model ? (tokens ? 400 : 120) : (tokens ? 60 : 30);
  p.sparse_steps = model ? 0 : tokens ? 30 : 15;
  p.interval = model ? (tokens ? 25 : 20) : tokens ? 10 : 15;
  p.rate = model ? 2e-3 : 1e-3;
  p.sparse_rate = model ? 0 : 1e-4;
  return p;
}

Result<std::string> train_folder(const TrainPlan& plan) {
  auto folder = trained_folder();
  if (!folder) return folder.error();
  const std::string name =
      plan.seed == 1 ? plan.model : fmt::format("{}-seed-{}", plan.model, plan.seed);
  return (fs::path(*folder) / name).string();
}

Result<ModelConfig> trainable_model(const std::string& name) {
  constexpr int kMostSelected = 64, kWidest = 1024;
  auto config = preset(name);
  if (!config) return config.error();
  if (selected_tokens(*config) > 0 && config->hidden <= kWidest) {
    config->index_topk = std::min(config->index_topk, kMostSelected);
    return config;
  }
  return usage_error(fmt::format("{} cannot be trained here", name),
                     "train a small model with an indexer: tiny-v3.2 or tiny");
}

Result<std::int64_t> far_entries(const ModelConfig& config, std::int64_t length) {
  constexpr std::int64_t kSelectsOneOf = 8;
  const std::int64_t far = kSelectsOneOf * config.index_topk, each = selected_tokens(config);
  if (far * each <= length) return far;
  return usage_error(
      fmt::format("sequences of {} bytes: no token sees {} times the {} {} that it "
                  "selects",
                  length, kSelectsOneOf, config.index_topk, each == 1 ? "tokens" : "entries"),
      fmt::format("--length {} or more", far * each));
}

std::string train_csv(const std::vector<TrainRow>& rows) {
  std::string out =
      "step,stage,rate,loss,kl,held_loss,held_sparse,layer,layer_kl,recall,mass,overlap,changed\n";
  for (const TrainRow& r : rows) {
    out += fmt::format(
        "{},{},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{},{:.6g},{:.6g},{:.6g},{:.6g},"
        "{:.6g}\n",
        r.step, r.stage, r.rate, r.loss, r.kl, r.held_loss, r.held_sparse, r.layer, r.layer_kl,
        r.recall, r.mass, r.overlap, r.changed);
  }
  return out;
}

Result<std::unique_ptr<TrainRun>> TrainRun::open(TrainPlan plan, bool again,
                                                 const as_threads* threads) {
  if (auto ok = check_plan(plan); !ok) return ok.error();
  auto config = trainable_model(plan.model);
  if (!config) return config.error();
  if (auto far = far_entries(*config, plan.length); !far) return far.error();
  if (plan.folder.empty()) {
    auto folder = train_folder(plan);
    if (!folder) return folder.error();
    plan.folder = std::move(*folder);
  }
  auto text = read_train_text(plan.text, plan.length);
  if (!text) return text.error();
  std::unique_ptr<TrainRun> run(new TrainRun());
  run->plan_ = std::move(plan);
  run->config_ = std::move(*config);
  run->text_ = std::move(*text);
  run->threads_ = threads;
  run->held_ = held_batch(run->text_, run->plan_.held, run->plan_.length);
  if (auto ok = run->begin(again); !ok) return ok.error();
  return run;
}

Result<void> TrainRun::begin(bool again) {
  std::error_code code;
  fs::create_directories(plan_.folder, code);
  if (code || !fs::is_directory(plan_.folder, code)) {
    return bad_input(fmt::format("{}: cannot be made a folder", plan_.folder),
                     "choose one that can be written: -o FOLDER");
  }
  const std::string state = path_of(".state");
  if (again) {
    std::vector<std::string> gone = {state, path_of(".csv"), checkpoint()};
    if (plan_.what == kTrainedModel) {  // an indexer belongs to the model that it was trained with
      const std::string indexer = plan_.folder + "/" + kTrainedIndexer;
      gone.insert(gone.end(), {indexer + ".state", indexer + ".csv", indexer});
    }
    for (const std::string& path : gone) {
      fs::remove_all(path, code);
      if (code) return bad_input(fmt::format("{}: cannot be removed: {}", path, code.message()));
    }
  }
  const std::string trained = plan_.folder + "/" + kTrainedModel;
  const bool indexer = plan_.what == kTrainedIndexer;
  if (indexer && !is_checkpoint_folder(trained)) {
    return bad_input(fmt::format("{}: there is no trained model in it", plan_.folder),
                     fmt::format("train it first: attnscope train model {} --seed {} -o {}",
                                 plan_.model, plan_.seed, shell_word(plan_.folder)));
  }
  auto made = make_trainer(config_, static_cast<std::uint64_t>(plan_.seed),
                           indexer ? trained : std::string(), plan_.threads, threads_);
  if (!made) return made.error();
  trainer_ = std::move(*made);
  if (fs::exists(state, code)) return go_on(state);
  if (!fs::exists(checkpoint(), code)) return {};
  return another_state(checkpoint(), "is there already, without the state that it came from");
}

Result<void> TrainRun::go_on(const std::string& path) {
  auto file = TensorFile::open(path);
  if (!file) return another_state(path, "no saved state of training: " + file.error().message);
  const auto text = file->metadata().find(kStateKey);
  if (text == file->metadata().end()) return another_state(path, "no saved state of training");
  auto parsed = parse_json(text->second, path);
  if (!parsed) return parsed.error();
  TrainHead head;
  if (const std::string wrong = from_json_fields(*parsed, head); !wrong.empty()) {
    return another_state(path, "its header lacks " + wrong);
  }
  const std::string words = plan_words(plan_, text_);
  if (head.plan != words) {
    return another_state(
        path, fmt::format("was begun otherwise: {}; asked for now: {}", head.plan, words));
  }
  std::vector<reference::TrainedTensor> tensors = trainer_->tensors();
  std::string missing;
  for (reference::TrainedTensor& t : tensors) {
    t.value = floats_of(*file, "value/" + t.name, missing);
    t.first = floats_of(*file, "first/" + t.name, missing);
    t.second = floats_of(*file, "second/" + t.name, missing);
  }
  const TensorEntry* selected = file->find("selected");
  if (!missing.empty() || selected == nullptr || selected->type != ElementType::kI32) {
    return another_state(path, fmt::format("has no {}", missing.empty() ? "selected" : missing));
  }
  selected_.resize(static_cast<std::size_t>(selected->elements));
  if (!selected_.empty()) std::memcpy(selected_.data(), selected->data, selected->bytes);
  if (head.made < 0 || head.made > steps_in_all() || head.summed < 0) {
    return another_state(path, "counts steps that there are not");
  }
  if (auto ok = trainer_->restore(tensors, head.made); !ok) {
    return another_state(path, ok.error().message);
  }
  made_ = head.made;
  summed_ = head.summed;
  loss_ = head.loss;
  kl_ = head.kl;
  rows_ = std::move(head.rows);
  return write_text_file(path_of(".csv"), train_csv(rows_));
}

reference::TrainStage TrainRun::stage() const {
  if (plan_.what != kTrainedIndexer) return reference::TrainStage::kModel;
  return made_ < plan_.steps ? reference::TrainStage::kWarmUp : reference::TrainStage::kSparse;
}

std::string TrainRun::stage_name() const {
  if (plan_.what != kTrainedIndexer) return "model";
  return made_ < plan_.steps ? "warm-up" : "sparse";
}

// The model's rises, then falls as a cosine; the indexer's is one number a stage.
double TrainRun::rate() const {
  if (plan_.what == kTrainedIndexer) return made_ < plan_.steps ? plan_.rate : plan_.sparse_rate;
  const double share = (static_cast<double>(made_) + 1) / static_cast<double>(steps_in_all());
  if (share < kWarming) return plan_.rate * share / kWarming;
  const double turn = std::cos(std::numbers::pi * (share - kWarming) / (1 - kWarming));
  return plan_.rate * (kLastRate + (1 - kLastRate) * (1 + turn) / 2);
}

Result<bool> TrainRun::step() {
  const auto tokens = learnt_batch(text_, static_cast<std::uint64_t>(plan_.seed), made_,
                                   plan_.sequences, plan_.length);
  auto lost = trainer_->step(stage(), {tokens, plan_.sequences, plan_.length}, rate());
  if (!lost) return lost.error();
  loss_ += lost->language;
  kl_ += lost->kl;
  ++summed_;
  const bool last_of_stage = made_ + 1 == plan_.steps || made_ + 1 == steps_in_all();
  if ((made_ + 1) % plan_.interval != 0 && !last_of_stage) {
    ++made_;
    return false;
  }
  if (auto ok = end_interval(); !ok) return ok.error();
  return true;
}

Result<void> TrainRun::end_interval() {
  const auto far = far_entries(config_, plan_.length);
  const std::int64_t across = plan_.length + 1, n = std::ssize(held_) / across;
  auto seen = trainer_->measure({held_, n, plan_.length}, *far);
  if (!seen) return seen.error();
  TrainRow row;
  row.stage = stage_name();
  row.rate = rate();
  row.step = ++made_;
  row.loss = loss_ / static_cast<double>(summed_);
  row.kl = kl_ / static_cast<double>(summed_);
  row.held_loss = seen->dense.language;
  row.held_sparse = seen->sparse;
  std::size_t at = 0;
  for (int i = 0; i < config_.num_layers(); ++i) {
    if (!layer_selects(config_, i)) continue;
    const reference::SelectionMeasure& m = seen->layers[at];
    row.layer = config_.layers[static_cast<std::size_t>(i)];
    row.layer_kl = m.kl;
    row.recall = m.recall;
    row.mass = m.mass;
    row.overlap = m.overlap;
    row.changed =
        changed_share(seen->selected, selected_, config_.index_topk, seen->layers.size(), at);
    rows_.push_back(row);
    ++at;
  }
  selected_ = std::move(seen->selected);
  loss_ = kl_ = 0;
  summed_ = 0;
  return save();
}

Result<void> TrainRun::save() const {
  const auto tensors = trainer_->tensors();
  TensorWriter writer;
  TrainHead head{plan_words(plan_, text_), made_, summed_, loss_, kl_, rows_};
  JsonText text;
  text.put(head);
  writer.metadata(kStateKey, text.text());
  for (const reference::TrainedTensor& t : tensors) {
    writer.add("value/" + t.name, ElementType::kF32, t.shape, t.value);
    writer.add("first/" + t.name, ElementType::kF32, t.shape, t.first);
    writer.add("second/" + t.name, ElementType::kF32, t.shape, t.second);
  }
  writer.add("selected", ElementType::kI32, {std::ssize(selected_)}, selected_);
  if (auto written = writer.write(path_of(".state")); !written) return written.error();
  return write_text_file(path_of(".csv"), train_csv(rows_));
}

bool TrainRun::finished() const { return is_checkpoint_folder(checkpoint()); }

Result<void> TrainRun::finish() {
  std::map<std::string, std::vector<float>> values;
  for (reference::TrainedTensor& t : trainer_->tensors()) values[t.name] = std::move(t.value);
  const Weights weights = allocate_weights(config_);
  for (const WeightSlot& slot : weight_slots(config_, weights)) {
    const std::vector<float>& from = values[slot.name];
    if (std::ssize(from) != slot.size() || (slot.bf16 == nullptr && slot.f32 == nullptr)) {
      return internal_error(slot.name + ": was not trained");
    }
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (slot.f32 != nullptr) slot.f32[i] = from[i];
      if (slot.bf16 != nullptr) slot.bf16[i] = {cpu::float_to_bf16(from[i])};
    }
  }
  auto totals = export_checkpoint(weights, config_, checkpoint(), ExportDtype::kBf16, threads_);
  return totals ? Result<void>() : totals.error();
}

}  // namespace attnscope
