// The audit of DeepSeek-V4: see op_audit.h.
//
// Pointers and numbers are looked at in every step, a weight or a table when it is met first. What
// the profile's switches choose is a number like others, although most of it rounds otherwise and
// changes nothing that float64 would see.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/wiring/deepseek_v4/model_reference.h"
#include "app/wiring/deepseek_v4/page_audit.h"
#include "app/wiring/op_audit.h"
#include "engine/family/models.h"
#include "engine/model/model_config.h"
#include "engine/session/step/op_params.h"
#include "reference/model.h"

namespace attnscope {

class WiringAudit : public OpAudit {
 public:
  // model must outlive the audit; config: the one that it is made of.
  WiringAudit(const reference::ModelReference& model, const ModelConfig& config)
      : model_(model),
        n_(model_numbers(config)),
        switches_(config.switches),
        host_rows_(config.host_rows),
        pages_(build_cache_layout(config), config.host_rows) {}

  // Of the op that ran last.
  void op_done(const Session& session) override;
  // The same of any op; a schedule op begins a step. layer: index among the running ones, -1 =
  // outside. sample_rows: those that final_norm is to read.
  void op_done(const OpParams& params, int layer, const TensorParallel& parallel,
               std::span<const std::int64_t> sample_rows);
  // Of an op that another rank ran, after the own ops of the layer.
  void rank_op_done(const OpParams& params, int layer, const TensorParallel& peer) override;
  // Of this step, in causal order.
  const std::vector<WrongWire>& found() const override { return found_; }

 private:
  struct Output {
    const void* data = nullptr;
    int layer = -1;
  };
  void check_sources(const OpParams& params, int layer, int ranks);
  bool output_in_codes() const;
  void check_flags(const OpParams& params, std::span<const GroupSpec> groups);
  bool in_draft(int layer) const;  // index among the running ones
  void check_gathered(const OpParams& params, std::span<const std::int64_t> rows);
  void check_weights(const OpParams& params, int layer, int rank);
  void check_weight(const OpParams& params, int layer, const char* tap,
                    const std::vector<std::string>& names, int rank);
  void check_numbers(const OpParams& params, int layer, int ranks);
  void check_rope(const OpParams& params, int layer, const as_rope& rope);
  void number(const OpParams& params, int layer, const char* what, double given, double right);
  void wrong(const OpParams& params, int layer, const std::string& what, std::string note);
  // The tensor that holds these values where one does: "layers.3.attn.attn_sink".
  std::string name_of(const TensorEntry& given, const TensorEntry* scale) const;
  std::string output_at(const void* data) const;

  const reference::ModelReference& model_;
  const reference::ModelNumbers n_;
  const ProfileSwitches switches_;
  const bool host_rows_;
  PageAudit pages_;
  using Outputs = std::map<std::pair<as_op_id, std::string>, Output>;  // by op and tap
  Outputs outputs_;                                                    // of this step
  Outputs peer_outputs_;  // the same, with those of a peer in the place of its own rank's
  int peer_ = -1;         // whose op is looked at; -1 = the own rank's
  std::map<std::string, const void*> due_;  // where inputs of this op belong that lie elsewhere
  std::vector<std::uint8_t> last_hidden_;   // rows that the last layer gave
  std::size_t row_bytes_ = 0;               // of these
  std::set<std::pair<const void*, std::string>> known_;  // right weights and tables
  std::vector<WrongWire> found_;
};

}  // namespace attnscope
