// The audit of absorbed MLA: see op_audit.h.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/wiring/op_audit.h"
#include "engine/cache/cache_layout.h"
#include "reference/model_mla.h"

namespace attnscope {

class MlaAudit : public OpAudit {
 public:
  // model must outlive the audit; numbers: those that it is made of; config: of the whole model;
  // layout: of the rank that is seen, or of the whole model where it is one.
  MlaAudit(const reference::ModelReference& model, reference::MlaNumbers numbers,
           const ModelConfig& config, CacheLayout layout)
      : model_(model), n_(std::move(numbers)), mla_(config.mla), layout_(std::move(layout)) {}

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

 private:
  struct Output {
    const void* data = nullptr;
    int layer = -1;
  };
  using Outputs = std::map<std::pair<as_op_id, std::string>, Output>;  // by op and tap
  void check_sources(const OpParams& params, int layer);
  void check_source(const Wire& wire, const OpParams& params, int layer);
  void check_gathered(const OpParams& params, std::span<const std::int64_t> rows);
  void check_weights(const OpParams& params, int layer);
  // from: the row of the published weight that the op's tensor begins with.
  void check_weight(const OpParams& params, int layer, const char* tap, const std::string& name,
                    std::int64_t first = 0, std::int64_t rows = -1, std::int64_t from = 0,
                    std::int64_t column = 0);
  void check_numbers(const OpParams& params, int layer);
  void check_rope(const OpParams& params, int layer, const as_rope& rope);
  void check_cache(const OpParams& params, int layer, const char* tap);
  void check_pages(const OpParams& params, int layer, const char* tap, const as_tensor& all,
                   int group);
  void keep(const OpParams& params, int layer);
  void number(const OpParams& params, int layer, const char* what, double given, double right);
  void wrong(const OpParams& params, int layer, const std::string& what, std::string note);

  const reference::ModelReference& model_;
  const reference::MlaNumbers n_;
  const MlaAttention mla_;
  const CacheLayout layout_;
  Outputs outputs_;       // of this step
  Outputs peer_outputs_;  // of the layer, of the peer whose ops run
  TensorParallel parallel_;
  int peer_ = -1;                          // whose op is looked at; -1 = the session's own
  as_tensor tables_{}, slots_{};           // of this step, of all groups
  std::vector<std::uint8_t> last_hidden_;  // rows that the last layer gave
  std::size_t row_bytes_ = 0;              // of these
  std::set<std::pair<const void*, std::string>> known_;  // right weights and tables
  std::vector<WrongWire> found_;
};

}  // namespace attnscope
