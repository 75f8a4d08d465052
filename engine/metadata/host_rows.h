// Which rows of a layer's cache a step speaks of when they lie in host memory behind a pool: who
// decodes and so reads through the pool, which rows are new, and by which name requests that share
// a block call a row. One answer for a session and for whoever reads a recorded one.
//
//   HostRows rows(spec, prompts);
//   rows.begin_step(metadata);                       // once its tokens and tables are known
//   if (rows.decodes(r)) pool.step(rows.written(), {rows.row(r, entry), ..});
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/cache/cache_spec.h"
#include "engine/metadata/step_metadata.h"
#include "engine/offload/row_pool.h"

namespace attnscope {

class HostRows {
 public:
  HostRows() = default;
  // prompts: tokens of each request's prompt.
  HostRows(const CacheSpec& spec, std::vector<std::int64_t> prompts);

  void begin_step(const StepMetadata& step);

  // Request row r computes new tokens of its own in this step: all of them are sampled and none is
  // of its prompt. Else it prefills, also where it computes again what it had lost.
  bool decodes(std::int64_t r) const { return decodes_[static_cast<std::size_t>(r)]; }
  // The same, for the first time since it prefilled.
  bool begins(std::int64_t r) const { return begins_[static_cast<std::size_t>(r)]; }
  // Whose block the entry lies in says whose row it is.
  HostRow row(std::int64_t r, std::int64_t entry) const;
  // The slot of such a row in the pages; -1 = it has none any more.
  std::int64_t slot(const HostRow& row) const;
  // Rows whose blocks have got new content in this step.
  const std::vector<HostRowRange>& gone() const { return gone_; }
  // Rows that tokens of requests which decode complete, each once; and by token, -1 in front of
  // HostRow::row where it completes none or does not decode.
  const std::vector<HostRow>& written() const { return written_; }
  HostRow written_by(std::int64_t token) const {
    return written_by_[static_cast<std::size_t>(token)];
  }

 private:
  struct Owner {
    std::int32_t request = -1, column = -1;
    friend auto operator<=>(const Owner&, const Owner&) = default;
  };
  void take_blocks(std::size_t r);
  void own(std::int32_t block, Owner owner);

  int group_ = 0;
  std::int32_t tokens_per_row_ = 1, rows_per_block_ = 1;
  std::vector<std::int64_t> prompts_;
  std::unordered_map<std::int32_t, Owner> owners_;  // by block
  std::map<Owner, std::int32_t> blocks_;            // the other way round
  std::vector<bool> was_decoding_;                  // by request
  const StepMetadata* step_ = nullptr;              // of the step in progress
  std::vector<bool> decodes_, begins_;              // by row of the step
  std::vector<HostRowRange> gone_;
  std::vector<HostRow> written_, written_by_;
};

}  // namespace attnscope
