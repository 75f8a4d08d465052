// The slab as the cache panel draws it, and the parts of a state row: against where the engine's
// rows really lie.
#include "app/views/slab_view.h"

#include <fmt/format.h>

#include <cstring>

#include "app/text/format.h"
#include "app/views/state_row.h"
#include "kernels/params/row_format.h"
#include "tests/unit/app/stepped_session.h"

namespace attnscope {
namespace slab_view_test {

class Slabs : public SteppedSession {};

TEST_F(Slabs, PagesOfAGroupFollowEachOtherInItsBlocks) {
  const SlabView view = slab_view(*info_);
  ASSERT_EQ(view.groups.size(), info_->layout.groups.size());
  EXPECT_EQ(view.stride, info_->layout.block_stride);
  std::size_t pages = 0;
  std::int64_t largest = 0;
  for (const SlabGroup& group : view.groups) {
    std::int64_t end = 0;
    for (const SlabPage& page : group.pages) {
      EXPECT_EQ(page.offset, end) << group.name << " " << page.name;
      EXPECT_LE(page.used, page.bytes);
      EXPECT_GT(page.used, 0);
      end = page.offset + page.bytes;
    }
    EXPECT_EQ(end, group.bytes) << group.name;
    largest = std::max(largest, end);
    pages += group.pages.size();
  }
  EXPECT_EQ(pages, info_->layout.specs.size());
  EXPECT_EQ(largest, view.stride);
  EXPECT_NE(view.sentence.find(format_count(view.stride) + " B"), std::string::npos)
      << view.sentence;
}

// The strides in words are those of the page: a byte put there is a byte of the row.
TEST_F(Slabs, StridesAreThoseOfThePages) {
  const SlabView view = slab_view(*info_);
  int latent = 0;
  for (const SlabGroup& group : view.groups) {
    for (const SlabPage& page : group.pages) {
      if (page.name != "swa") continue;
      ++latent;
      EXPECT_EQ(page.where, "row r at 576 \xc3\x97 r, its scales at " + format_count(36864) +
                                " + 8 \xc3\x97 r");
      const std::string text = slab_page_text(view, group, page, 3);
      const std::string at = fmt::format("in block 3: byte {} of the slab",
                                         format_count(3 * view.stride + page.offset));
      EXPECT_NE(text.find(at), std::string::npos) << text;
      EXPECT_EQ(slab_page_text(view, group, page, -1).find("in block"), std::string::npos);
    }
  }
  EXPECT_EQ(latent, info_->config.num_layers());
  const CacheSpec& spec = *info_->layout.find(0, token_rows(info_->layout, 0)->id);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(spec.rows().page_used), 0);
  const as_cache page = spec.cache(make_tensor(bytes.data(), {1, spec.rows().page_used}));
  std::vector<std::uint8_t> row(static_cast<std::size_t>(spec.rows().row));
  for (const std::int64_t r : {std::int64_t{0}, std::int64_t{5}, std::int64_t{63}}) {
    bytes[static_cast<std::size_t>(576 * r)] = 11;
    bytes[static_cast<std::size_t>(36864 + 8 * r)] = 12;
    as_row_get(&page, r, row.data());
    EXPECT_EQ(row[0], 11);
    EXPECT_EQ(row[576], 12);
  }
}

TEST_F(Slabs, PartsOfAStateAreNamedByTheEntriesTheyGoInto) {
  std::vector<float> values(16, 0.5f);
  values[5] = -3;
  values[9] = 7;
  std::vector<std::uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  const RecordBytes row{AS_RECORD_STATE, 16, bytes};
  const auto overlapping = state_parts(row, 2);
  ASSERT_EQ(overlapping.size(), 4u);
  EXPECT_EQ(state_words(overlapping, 1), "C for the next entry, channel 1");
  EXPECT_EQ(state_words(overlapping, 5), "C for its own entry, channel 1");
  EXPECT_EQ(state_words(overlapping, 9), "Z for the next entry, channel 1");
  EXPECT_EQ(state_words(overlapping, 15), "Z for its own entry, channel 3");
  EXPECT_EQ(overlapping[1].largest, 3);
  EXPECT_EQ(overlapping[2].largest, 7);
  const auto alone = state_parts(row, 1);
  ASSERT_EQ(alone.size(), 2u);
  EXPECT_EQ(state_words(alone, 9), "Z, channel 1");
  EXPECT_TRUE(state_parts({AS_RECORD_LATENT, 512, bytes}, 2).empty());
  EXPECT_TRUE(state_words(alone, 16).empty());

  for (int i = 0; i < info_->config.num_layers(); ++i) {
    const std::string type = layer_type_name(info_->config, i);
    EXPECT_EQ(entries_of_token(*info_, info_->config.layers[static_cast<std::size_t>(i)]),
              type == "C4A"     ? 2
              : type == "C128A" ? 1
                                : 0)
        << type;
  }
  EXPECT_EQ(entries_of_token(*info_, 12345), 0);
}

}  // namespace slab_view_test
}  // namespace attnscope
