#include "app/views/kv_stream.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "app/views/stream_view.h"

namespace attnscope {
namespace kv_stream_test {

class KvStreamTest : public ::testing::Test {
 protected:
  std::shared_ptr<const KvStream> read(const std::string& text) {
    std::ofstream(path_) << text;
    auto stream = read_kv_stream(path_);
    EXPECT_TRUE(stream) << (stream ? "" : stream.error().text());
    return stream ? *stream : std::make_shared<const KvStream>();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  // Tests run side by side, each in a process of its own.
  std::string path_ = fmt::format("{}attnscope-kv-stream-{}.jsonl", ::testing::TempDir(), getpid());
};

std::string hex(int hash) { return fmt::format("{:016x}", hash); }

KvStreamMap::Key key(std::uint64_t hash, std::int32_t group) { return {hex(hash), group, -1, ""}; }

constexpr const char* kTwoGroups = R"(
[0.0, [{"type": "BlockStored", "block_hashes": [1, 2], "token_ids": [5, 6, 7, 8], "block_size": 2,
        "group_idx": 0},
       {"type": "BlockStored", "block_hashes": [1], "token_ids": [5, 6], "block_size": 2,
        "group_idx": 1}]]
)";

TEST_F(KvStreamTest, MapAfterEachBatch) {
  const auto stream = read(R"([1.0, [["BlockStored", [11, 12], null, [1, 2, 3, 4], 2]]]
[2.0, [["BlockStored", [13], 12, [7, 8], 2], ["BlockStored", [11], null, [1, 2], 2]]]
[3.0, [["BlockRemoved", [11, 99]]]]
[4.0, [["AllBlocksCleared"]]]
)");
  KvStreamMap map(stream);
  EXPECT_EQ(map.batch(), -1);
  EXPECT_TRUE(map.entries().empty());
  map.seek(1);
  ASSERT_EQ(map.entries().size(), 3u);
  const KvStreamEntry& third = map.entries().at(key(13, -1));
  EXPECT_EQ(third.tokens, 6);
  EXPECT_EQ(third.parent, hex(12));
  EXPECT_EQ(third.ends_with, "7 8");
  EXPECT_EQ(third.batch, 1);
  EXPECT_EQ(map.entries().at(key(11, -1)).blocks, 2);
  EXPECT_EQ(map.blocks(), 4);
  map.seek(2);
  EXPECT_EQ(map.entries().at(key(11, -1)).blocks, 1);
  EXPECT_EQ(map.counts().unknown, 1);
  map.seek(3);
  EXPECT_TRUE(map.entries().empty());
  EXPECT_EQ(map.blocks(), 0);
  EXPECT_EQ(map.counts().cleared, 1);
  map.seek(0);  // back
  EXPECT_EQ(map.entries().size(), 2u);
  EXPECT_EQ(map.counts().stored, 1);
  map.seek(100);
  EXPECT_EQ(map.batch(), 3);
}

TEST_F(KvStreamTest, AKeyStandsOncePerGroup) {
  KvStreamMap map(read(kTwoGroups));
  map.seek(0);
  EXPECT_EQ(map.entries().size(), 3u);
  EXPECT_EQ(map.entries().at(key(1, 1)).tokens, 2);
}

// Each rank has a pool of its own; a copy on another medium is another copy.
TEST_F(KvStreamTest, RanksAndMediaAreKeptApart) {
  const auto stream = read(R"([1.0, [["BlockStored", [1], null, [1, 2], 2]], 0]
[2.0, [["BlockStored", [2], null, [3, 4], 2]], 1]
[3.0, [["AllBlocksCleared"]], 0]
[4.0, [["BlockStored", [2], null, [3, 4], 2, null, "CPU"]], 1]
[5.0, [{"type": "BlockRemoved", "block_hashes": [2], "medium": "CPU"}], 1]
)");
  KvStreamMap map(stream);
  map.seek(2);
  ASSERT_EQ(map.entries().size(), 1u);
  EXPECT_EQ(map.entries().begin()->first, (KvStreamMap::Key{hex(2), -1, 1, ""}));
  EXPECT_EQ(map.blocks(), 1);
  map.seek(3);
  EXPECT_EQ(map.entries().size(), 2u);
  const StreamView both = stream_view(*stream, map);
  EXPECT_EQ(both.rows[0].where, "rank 1, CPU");
  EXPECT_EQ(both.rows[1].where, "rank 1");
  map.seek(4);
  ASSERT_EQ(map.entries().size(), 1u);
  EXPECT_EQ(map.entries().begin()->first.medium, "");
  EXPECT_EQ(map.counts().unknown, 0);
}

TEST_F(KvStreamTest, APrefixWhoseBeginningIsMissingHasNoLength) {
  KvStreamMap map(read(R"([1.0, [["BlockStored", [12, 13], 11, [1, 2, 3, 4], 2]]])"));
  map.seek(0);
  EXPECT_EQ(map.entries().at(key(12, -1)).tokens, -1);
  EXPECT_EQ(map.entries().at(key(13, -1)).tokens, -1);
}

TEST_F(KvStreamTest, View) {
  const auto stream = read(R"([1.0, [["BlockStored", ["0123456789abcdef0123"], null, [1, 2], 2]]]
[3.0, [["BlockRemoved", [5]]]]
)");
  KvStreamMap map(stream);
  map.seek(1);
  const StreamView view = stream_view(*stream, map);
  EXPECT_EQ(view.sentence,
            "After batch 2 of 2: 1 key finds 1 block in 1 group; 1 event stored, 1 removed, 0 "
            "cleared. 1 removed content that was never stored: the stream begins late, or lost "
            "batches.");
  ASSERT_EQ(view.rows.size(), 1u);
  EXPECT_EQ(view.rows[0].hash, "0123456..def0123");
  EXPECT_EQ(view.rows[0].group, "not said");
  EXPECT_FALSE(view.rows[0].fresh);
  map.seek(0);
  EXPECT_TRUE(stream_view(*stream, map).rows[0].fresh);
}

TEST_F(KvStreamTest, Refusals) {
  EXPECT_FALSE(read_kv_stream("/no/such/file"));
  std::ofstream(path_) << "[1.0, [[\"BlockStored\", 5]]]";
  const auto stream = read_kv_stream(path_);
  ASSERT_FALSE(stream);
  EXPECT_NE(stream.error().text().find(path_), std::string::npos) << stream.error().text();
}

}  // namespace kv_stream_test
}  // namespace attnscope
