// What audits of layers by published names have in common (op_audit.h): outputs of the step by op
// and tap, and which input each must lie in; rows of the last layer that are sampled from; weights
// and rotary tables that were found right once.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/wiring/op_audit.h"
#include "engine/cache/cache_layout.h"
#include "reference/model.h"

namespace attnscope {

class LayerAudit : public OpAudit {
 public:
  void op_done(const Session& session) override;
  // The same of any op, of a rank; a schedule op begins a step. sample_rows: those that final_norm
  // reads.
  void op_done(const OpParams& params, int layer, const TensorParallel& parallel,
               std::span<const std::int64_t> sample_rows);
  void rank_op_done(const OpParams& params, int layer, const TensorParallel& peer) override;
  const std::vector<WrongWire>& found() const override { return found_; }

  // Which tap of an earlier op of the step lies in an input.
  struct Wire {
    as_op_id op;
    const char* tap;
    as_op_id from;
    const char* output;
  };

 protected:
  // model must outlive the audit; layers: those that run; layout: of the rank that is seen, or of
  // the whole model where it is one. first_dealt: the first op of a layer that ranks run apart.
  LayerAudit(const reference::ModelReference& model, std::vector<int> layers, CacheLayout layout,
             as_op_id first_dealt)
      : model_(model),
        layers_(std::move(layers)),
        layout_(std::move(layout)),
        first_dealt_(first_dealt) {}

  // Numbers, caches and pages that an op is given.
  virtual void check_numbers(const OpParams& params, int layer) = 0;
  virtual void check_sources(const OpParams& params, int layer) = 0;
  virtual void check_weights(const OpParams& params, int layer) = 0;
  // Of an op that a peer ran, beside the outputs of the own one.
  virtual void check_peer(const OpParams&, int) {}

  void check_wires(std::span<const Wire> wires, const OpParams& params, int layer);
  void check_source(const Wire& wire, const OpParams& params, int layer);
  void check_rope(const OpParams& params, int layer, const as_rope& rope);
  // all: of every group from `first` on; what is given must be the part of the group that the rows
  // are of.
  void check_pages(const OpParams& params, int layer, const char* tap, const as_tensor& all,
                   int group, int first = 0);
  // others: values of `given`, read as a part of weight `name`, that are not that weight's;
  // negative = it has not so many. as_read: what known_ has of it.
  void judge_weight(const OpParams& params, int layer, const char* tap, const std::string& name,
                    std::int64_t others, const TensorEntry& given,
                    const std::pair<const void*, std::string>& as_read);
  // Two ways to compute one number may differ by `slack` of it.
  void number(const OpParams& params, int layer, const char* what, double given, double right,
              double slack = 0);
  void wrong(const OpParams& params, int layer, const std::string& what, std::string note);

  struct Output {
    const void* data = nullptr;
    int layer = -1;
  };
  using Outputs = std::map<std::pair<as_op_id, std::string>, Output>;  // by op and tap

  const reference::ModelReference& model_;
  const std::vector<int> layers_;
  const CacheLayout layout_;
  Outputs outputs_;  // of this step
  TensorParallel parallel_;
  as_tensor tables_{}, slots_{};                         // of this step, of all groups
  std::set<std::pair<const void*, std::string>> known_;  // right weights and tables

 private:
  void check_gathered(const OpParams& params, std::span<const std::int64_t> rows);
  void keep(const OpParams& params, int layer);

  const as_op_id first_dealt_;
  Outputs peer_outputs_;                   // of the layer, of the peer whose ops run
  int peer_ = -1;                          // whose op is looked at; -1 = the session's own
  std::vector<std::uint8_t> last_hidden_;  // rows that the last layer gave
  std::size_t row_bytes_ = 0;              // of these
  std::vector<WrongWire> found_;
};

}  // namespace attnscope
