// The audit of dense attention: see op_audit.h.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/wiring/op_audit.h"
#include "engine/cache/cache_layout.h"
#include "reference/model_dense.h"

namespace attnscope {

class DenseAudit : public OpAudit {
 public:
  // model must outlive the audit; numbers: those that it is made of.
  DenseAudit(const reference::ModelReference& model, reference::DenseNumbers numbers,
             CacheLayout layout)
      : model_(model), n_(std::move(numbers)), layout_(std::move(layout)) {}

  void op_done(const Session& session) override;
  // The same of any op; a schedule op begins a step. sample_rows: those that final_norm reads.
  void op_done(const OpParams& params, int layer, std::span<const std::int64_t> sample_rows);
  // Ranks are no matter of dense models: their caches are dealt out.
  void rank_op_done(const OpParams&, int, const TensorParallel&) override {}
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
  void check_sources(const OpParams& params, int layer);
  void check_source(const Wire& wire, const OpParams& params, int layer);
  void check_gathered(const OpParams& params, std::span<const std::int64_t> rows);
  void check_weights(const OpParams& params, int layer);
  void check_weight(const OpParams& params, int layer, const char* tap, const std::string& name);
  void check_insertion(const OpParams& params, int layer);
  void check_attention(const OpParams& params, int layer);
  void check_local_batch(const OpParams& params);
  // Tokens of the chunks of a running layer, 0 = none.
  std::int64_t chunk_of(int layer) const;
  void check_cache(const OpParams& params, int layer, const char* tap);
  void check_pages(const OpParams& params, int layer, const char* tap, const as_tensor& all,
                   int group, int first = 0);
  void keep(const OpParams& params, int layer);
  void number(const OpParams& params, int layer, const char* what, double given, double right);
  void wrong(const OpParams& params, int layer, const std::string& what, std::string note);

  const reference::ModelReference& model_;
  const reference::DenseNumbers n_;
  const CacheLayout layout_;
  std::map<std::pair<as_op_id, std::string>, Output> outputs_;  // of this step, by op and tap
  as_tensor tables_{}, slots_{};                                // of this step, of all groups
  as_tensor local_tables_{};                                    // of those with chunks
  std::vector<std::uint8_t> last_hidden_;                       // rows that the last layer gave
  std::size_t row_bytes_ = 0;                                   // of these
  std::set<std::pair<const void*, std::string>> known_;         // right weights and tables
  std::vector<WrongWire> found_;
};

}  // namespace attnscope
