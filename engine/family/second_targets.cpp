#include "engine/family/second_targets.h"

#include <utility>

namespace attnscope {

SecondTarget whole_target(std::string published, std::vector<std::string> names, as_op_id op,
                          std::int64_t rows, std::int64_t columns, int rank, const Weight& held) {
  SecondTarget t;
  t.published = std::move(published);
  t.names = std::move(names);
  t.op = op;
  t.rows = rows;
  t.columns = columns;
  HeldPart piece{rank, 0, rows, 0, columns, columns};
  piece.bf16 = held.bf16.data();
  if (piece.bf16 == nullptr) piece.f32 = held.f32.data();
  t.pieces.push_back(piece);
  return t;
}

}  // namespace attnscope
