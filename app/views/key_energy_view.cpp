#include "app/views/key_energy_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/text/format.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"
#include "engine/trace/compare.h"
#include "kernels/cpu/codec.h"
#include "kernels/params/row_access.h"

namespace attnscope {
namespace {

// H x / sqrt(n), which is its own inverse; n is a power of two.
void transform(std::vector<double>& x) {
  const std::size_t n = x.size();
  for (std::size_t half = 1; half < n; half *= 2) {
    for (std::size_t i = 0; i < n; ++i) {
      if ((i & half) != 0) continue;
      const double a = x[i], b = x[i + half];
      x[i] = a + b;
      x[i + half] = a - b;
    }
  }
  for (double& v : x) v /= std::sqrt(static_cast<double>(n));
}

// One key more; energies are sums until finish().
void add_key(KeyForm& form, const std::vector<double>& key) {
  double square = 0, most = 0, error = 0;
  for (std::size_t d = 0; d < key.size(); ++d) {
    form.energy[d] += key[d] * key[d];
    square += key[d] * key[d];
    most = std::max(most, std::fabs(key[d]));
  }
  if (square == 0) return;
  const auto scale = static_cast<float>(most / 448);
  for (const double v : key) {
    const float stored = cpu::e4m3_to_float(cpu::float_to_e4m3(static_cast<float>(v) / scale));
    const double off = static_cast<double>(stored * scale) - v;
    error += off * off;
  }
  form.largest += most / std::sqrt(square / static_cast<double>(key.size()));
  form.fp8_error += error / square;
}

void finish(KeyForm& form, std::int64_t keys) {
  double all = 0;
  for (const double e : form.energy) all += e;
  const double mean = all / static_cast<double>(form.energy.size());
  for (double& e : form.energy) e = mean > 0 ? e / mean : 0;
  form.largest /= static_cast<double>(keys);
  form.fp8_error = std::sqrt(form.fp8_error / static_cast<double>(keys));
}

KeyEnergyView no_keys(KeyEnergyView view, const std::string& why) {
  view.why_empty = why + ".";
  return view;
}

// The op that stores index keys in a layer; nullptr = none does.
const OpTrace* writer_of_keys(const StepTrace& step, int layer) {
  const OpTrace* found = nullptr;
  for (int i = 0; i < AS_OP_COUNT && found == nullptr; ++i) {
    const auto op = static_cast<as_op_id>(i);
    if (as_op_role(op) != AS_ROLE_CACHE_WRITE || as_op_row(op) == nullptr) continue;
    for (const as_cache_access& access : RowAccess::of(op)) {
      if (access.direction == AS_TAP_OUT && access.role == AS_CACHE_INDEX) {
        found = step.find(layer, op);
      }
    }
  }
  return found;
}

}  // namespace

KeyEnergyView key_energy_view(const SessionInfo& info, const StepTrace& step, int layer) {
  KeyEnergyView view;
  view.layer = layer;
  const ModelConfig& config = info.config;
  const auto at = std::ranges::find(config.layers, layer) - config.layers.begin();
  const bool runs = to_size(at) < config.layers.size();
  if (!runs || !layer_selects(config, static_cast<int>(at))) {
    return no_keys(std::move(view),
                   runs ? fmt::format("Layer {} is {}: it selects nothing and has no index keys",
                                      layer, layer_type_name(config, static_cast<int>(at)))
                        : std::string("Index keys are of layers; the cursor is outside of them"));
  }
  const OpTrace* writer = writer_of_keys(step, layer);
  const TapCopy* rows =
      writer != nullptr ? writer->tap(as_op_row(writer->place.op)->name) : nullptr;
  if (rows == nullptr || rows->value.data == nullptr) {
    return no_keys(std::move(view), fmt::format("Layer {} has not stored its index keys in this "
                                                "step yet",
                                                layer));
  }
  view.transformed = config.family == "mla" ? config.mla.hadamard : config.switches.hadamard;
  const std::int64_t dims = rows->value.shape[1];
  view.before.energy.assign(to_size(dims), 0);
  view.after.energy.assign(to_size(dims), 0);
  for (std::int64_t t = 0; t < rows->value.shape[0]; ++t) {
    std::vector<double> key(to_size(dims));
    for (std::int64_t d = 0; d < dims; ++d) key[to_size(d)] = element(rows->value, t, d);
    if (!std::ranges::all_of(key, [](double v) { return std::isfinite(v); })) continue;
    ++view.keys;
    std::vector<double> other = key;
    transform(other);
    add_key(view.before, view.transformed ? other : key);
    add_key(view.after, view.transformed ? key : other);
  }
  if (view.keys == 0) {
    return no_keys(std::move(view), "No token of this step completes an index key");
  }
  finish(view.before, view.keys);
  finish(view.after, view.keys);
  view.sentence = fmt::format(
      "{} index keys of layer {}: the largest number of a key is {:.2f} times its root mean square "
      "before the Hadamard transform and {:.2f} times after it; FP8 with one scale a key is off by "
      "{:.3g} and {:.3g} of a key. Stored is the key {} it",
      format_count(view.keys), layer, view.before.largest, view.after.largest,
      view.before.fp8_error, view.after.fp8_error, view.transformed ? "after" : "before");
  return view;
}

}  // namespace attnscope
