// RowsAsRead: the rows that a call reads as logical caches, and whose sums nobody can be judged on.
#include "engine/session/step/rows_as_read.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace rows_as_read_test {

// Two requests with state rows of one value in pages of four. Each completes an entry of ratio 4:
// request 0 at position 3, request 1 at position 15, which pools rows 8 to 15.
struct Pooling {
  std::vector<float> pages = std::vector<float>(4 * 9, 0.0f);
  std::vector<std::int32_t> table = {5, 0, 0, 0, 4, 3, 8, 1}, token_to_req = {0, 1, 1};
  std::vector<std::int64_t> positions = {3, 15, 16}, slots = {0, 1, -1};
  OpParams params;

  Pooling() {
    for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<float>(i);
    auto& p = params.init<as_compress_insert_params>(AS_OP_COMPRESS_INSERT);
    p.state.data = make_tensor(pages.data(), AS_U8, {9, 16});
    p.state.record = AS_RECORD_STATE;
    p.state.rows_per_block = 4;
    p.state.width = 1;
    p.table = make_tensor(table.data(), {2, 4});
    p.token_to_req = make_tensor(token_to_req.data(), {3});
    p.positions = make_tensor(positions.data(), {3});
    p.slots = make_tensor(slots.data(), {3});
    p.ratio = 4;
  }
};

TEST(RowsAsRead, StateRowsOfWindowsAreWhereThePositionsSay) {
  const Pooling call;
  OpParams copy = call.params;
  RowsAsRead rows;
  rows.replace(call.params, copy);
  const auto& p = copy.get<as_compress_insert_params>();
  EXPECT_EQ(p.state.addressing, AS_LOGICAL);
  const auto at_row = [&](std::int64_t request, std::int64_t position) {
    return *at<float>(p.state.data, *at<std::int32_t>(p.table, request) + position);
  };
  EXPECT_EQ(at_row(0, 0), 20);  // block 5
  EXPECT_EQ(at_row(0, 3), 23);
  EXPECT_EQ(at_row(1, 8), 32);  // block 8
  EXPECT_EQ(at_row(1, 11), 35);
  EXPECT_EQ(at_row(1, 12), 4);  // block 1
  EXPECT_EQ(at_row(1, 15), 7);
  EXPECT_TRUE(rows.wild_tokens().empty());
}

// Blocks behind a window go to other groups, whose bytes are wild numbers here.
TEST(RowsAsRead, RowsBehindAWindowLeaveNoTokenOut) {
  Pooling call;
  RowsAsRead rows;
  OpParams copy = call.params;
  call.pages[4 * 3] = 1e30f;  // position 4 of request 1
  rows.replace(call.params, copy);
  EXPECT_TRUE(rows.wild_tokens().empty());
  call.pages[4 * 8] = 1e30f;  // position 8
  rows.replace(call.params, copy);
  EXPECT_EQ(rows.wild_tokens(), (std::vector<bool>{false, true, true}));
}

}  // namespace rows_as_read_test
}  // namespace attnscope
