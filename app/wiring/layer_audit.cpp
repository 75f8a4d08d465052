#include "app/wiring/layer_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/model/numbers.h"
#include "engine/session/session.h"
#include "kernels/params/dtype.h"

namespace attnscope {
namespace {

// Inputs that nobody's output lies in, and which others must share.
constexpr std::pair<as_op_id, const char*> kSharedInputs[] = {{AS_OP_SLOT_MAPPING, "positions"},
                                                              {AS_OP_SLOT_MAPPING, "token_to_req"},
                                                              {AS_OP_CROSS_BATCH, "source_lens"},
                                                              {AS_OP_ATTN_NORM, "x"}};

}  // namespace

void LayerAudit::op_done(const Session& session) {
  // On a device the copy of rows may lie there alone.
  const bool here = session.references() != References::kNone ||
                    session.lanes().lane(AS_OP_FINAL_NORM) != DeviceRun::kLane;
  std::span<const std::int64_t> rows;
  if (here) rows = session.metadata().sample_rows;
  op_done(session.last_params(), session.cursor().layer, session.parts().config.parallel, rows);
}

// What heads do not divide is the same on every rank, so that the ops before stand for the peer's.
void LayerAudit::rank_op_done(const OpParams& params, int layer, const TensorParallel& peer) {
  if (params.op() == first_dealt_) peer_outputs_ = outputs_;
  peer_ = peer.rank;
  std::swap(outputs_, peer_outputs_);
  op_done(params, layer, peer, {});
  std::swap(outputs_, peer_outputs_);
  check_peer(params, layer);
  peer_ = -1;
}

void LayerAudit::op_done(const OpParams& params, int layer, const TensorParallel& parallel,
                         std::span<const std::int64_t> sample_rows) {
  parallel_ = parallel;
  switch (params.op()) {
    case AS_OP_SCHEDULE:
      outputs_.clear();
      found_.clear();
      break;
    case AS_OP_BLOCK_TABLES:
      tables_ = params.get<as_block_tables_params>().tables;
      break;
    case AS_OP_SLOT_MAPPING:
      slots_ = params.get<as_slot_mapping_params>().slots;
      break;
    case AS_OP_FINAL_NORM:
      check_gathered(params, sample_rows);
      break;
    default:
      break;
  }
  check_numbers(params, layer);
  check_sources(params, layer);
  check_weights(params, layer);
  keep(params, layer);
}

void LayerAudit::keep(const OpParams& params, int layer) {
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    const bool shared = std::ranges::any_of(kSharedInputs, [&](const auto& s) {
      return s.first == params.op() && std::string_view(tap.name) == s.second;
    });
    if (tap.direction == AS_TAP_OUT || shared) {
      outputs_[{params.op(), tap.name}] = {audited_data(params, tap), layer};
    }
  }
  if (params.op() != AS_OP_RESIDUAL || to_size(layer) + 1 != layers_.size()) return;
  const as_tensor& out = params.get<as_residual_params>().out;
  row_bytes_ = to_size(out.shape[1] * as_dtype_size(out.dtype));
  const auto* data = static_cast<const std::uint8_t*>(out.data);
  last_hidden_.assign(data, data + to_size(out.shape[0]) * row_bytes_);
}

void LayerAudit::check_wires(std::span<const Wire> wires, const OpParams& params, int layer) {
  for (const Wire& wire : wires) {
    // Summed over ranks in between.
    const bool summed = parallel_.size > 1 && wire.from == AS_OP_O_PROJ;
    if (wire.op == params.op() && !summed) check_source(wire, params, layer);
  }
}

void LayerAudit::check_source(const Wire& wire, const OpParams& params, int layer) {
  const auto from = outputs_.find({wire.from, wire.output});
  if (from == outputs_.end()) return;  // beside a session that stands in the middle of a step
  const bool in_layer = as_op_find(wire.from)->phase == AS_PHASE_LAYER;
  const int due = wire.op == AS_OP_ATTN_NORM ? layer - 1 : layer;
  const char* writer = as_op_find(wire.from)->name;
  const as_tap_info& tap = *audited_tap(params, wire.tap);
  if (in_layer && from->second.layer != due) {
    wrong(params, layer, wire.tap,
          fmt::format("its input {} is {} of {}, which has not run in this layer yet", wire.tap,
                      wire.output, writer));
    return;
  }
  if (tap.kind == AS_TAP_TENSOR && !is_gapless(params.tensor(tap.offset))) {
    wrong(params, layer, wire.tap,
          fmt::format("its input {} is read with other strides than {} of {} was written with",
                      wire.tap, wire.output, writer));
  } else if (audited_data(params, tap) != from->second.data) {
    wrong(params, layer, wire.tap,
          fmt::format("its input {} is not {} of {}", wire.tap, wire.output, writer));
  }
}

void LayerAudit::check_gathered(const OpParams& params, std::span<const std::int64_t> rows) {
  const as_tensor& x = params.get<as_rms_norm_params>().x;
  if (rows.empty() || last_hidden_.empty()) return;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::uint8_t* right = last_hidden_.data() + to_size(rows[i]) * row_bytes_;
    const auto* given = static_cast<const std::uint8_t*>(x.data) + i * row_bytes_;
    if (to_count(i) < x.shape[0] && std::memcmp(given, right, row_bytes_) == 0) continue;
    return wrong(params, -1, "x",
                 fmt::format("row {} of its x is not token {} of the last layer", i, rows[i]));
  }
}

void LayerAudit::check_rope(const OpParams& params, int layer, const as_rope& rope) {
  const std::pair<const void*, std::string> as_read = {rope.table.data,
                                                       fmt::format("rope {}", layer)};
  if (!known_.insert(as_read).second) return;
  if (turns_by(rope.table, model_.frequencies(to_size(layer)))) return;
  known_.erase(as_read);
  wrong(params, layer, "rope.table",
        fmt::format("its rotary table is not that of layer {}", layers_[to_size(layer)]));
}

void LayerAudit::check_pages(const OpParams& params, int layer, const char* tap,
                             const as_tensor& all, int group, int first) {
  const auto part = [&](int g) {
    return static_cast<const std::uint8_t*>(all.data) +
           (g - first) * all.stride[0] * as_dtype_size(all.dtype);
  };
  const as_tensor& given = params.tensor(audited_tap(params, tap)->offset);
  if (all.data == nullptr || given.data == part(group)) return;
  std::string other = "that of no group";
  for (int g = first; g < first + all.shape[0]; ++g) {
    if (given.data == part(g)) other = fmt::format("that of group {}", g);
  }
  wrong(params, layer, tap,
        fmt::format("what it is given as {} is {}, not that of group {}, where its rows lie", tap,
                    other, group));
}

void LayerAudit::judge_weight(const OpParams& params, int layer, const char* tap,
                              const std::string& name, std::int64_t others,
                              const TensorEntry& given,
                              const std::pair<const void*, std::string>& as_read) {
  if (others == 0) return;
  known_.erase(as_read);
  for (const std::string& other : model_.weights()) {
    if (others < 0 || model_.others(other, 0, 0, given, nullptr) != 0) continue;
    return wrong(params, layer, tap, fmt::format("its {} is {}, not {}", tap, other, name));
  }
  wrong(params, layer, tap,
        fmt::format("its {} is not {}: {} of {} values are others", tap, name, others,
                    given.elements));
}

void LayerAudit::number(const OpParams& params, int layer, const char* what, double given,
                        double right, double slack) {
  if (given == right || std::abs(given - right) <= slack * std::abs(right)) return;
  wrong(params, layer, what,
        fmt::format("its {} is {:.6g}; the model's is {:.6g}", what, given, right));
}

void LayerAudit::wrong(const OpParams& params, int layer, const std::string& what,
                       std::string note) {
  if (peer_ >= 0) note = fmt::format("on rank {} {}", peer_, note);
  found_.push_back({params.op(), layer, what, std::move(note)});
}

}  // namespace attnscope
