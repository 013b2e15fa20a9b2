// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Bugs that are put in on purpose, to see that the simulator finds them. They exist only in a
/// variant of lib/transport, lib/collective and lib/command that is built for
/// test/sim/planted_bugs.cc and command_sim.cc with GRADWIRE_PLANTED_BUGS; everywhere else
/// planted() is false at compile time, and what it guards is gone.
#pragma once

#include <cstdint>

namespace gradwire {

enum class PlantedBug : std::uint8_t {
  kNone,
  kSkippedDuplicateCheck,       ///< a chunk that comes again is reduced again
  kLyingAck,                    ///< a packet with a wrong payload is acknowledged and dropped
  kMissedSpill,                 ///< a chunk that was finished to memory is not sent from there
  kLostCreditUpdate,            ///< a limit is said once, and if that is lost, never again
  kEarlyReuse,                  ///< a sent mbuf is written to while a driver holds it
  kSpillWithoutGrantHoldsBack,  ///< own chunks wait for spilled ones that may not go: a deadlock
  kDescriptorOfForgottenOp,     ///< a frame sent again reads its op's descriptor, which is gone
  kFoldStartsAtWrongRank,       ///< a block of a reduce-scatter misses the rank at which it begins
  kDoneBeforeNextPosted,  ///< an op that went ahead gives its early places back before its grant
  kHeldNotClaimed,        ///< a chunk that waits in its packet is taken again if it comes again
  kCreditNeverBack,       ///< a chunk that goes on never gives back the credit by which it came
  kPostedWordRunsAhead,   ///< a rank says of all after it what it says of itself
  kScratchFreedBeforeAcknowledged,  ///< of a direct op, as soon as it is done here
  kFoldInArrivalOrder,              ///< a direct op is folded from the rank on that came first
  kSendDoneWhenSent,                ///< a transfer ends at its source when all was sent once
  kWaitingReceiveTakesTurn,         ///< a receive has its turn though its source has posted nothing
  kPulledOnce,                      ///< chunks that do not come are not pulled again
  kPieceOfOtherTransfer,            ///< a piece of an earlier transfer is taken for one of this
  kRoomToldAsSize,                  ///< a receive of at most so many bytes tells that as what came
  kToldOutOfOrder,  ///< a rank without members posts an op before one of which it may hear yet
  kTwoStepInOwnersOrder,   ///< a two-step op is folded as a reduce-scatter, not as the ring does
  kGatheredInOwnOrder,     ///< a gathered op is folded as its slots lie, from this rank's own on
  kMessageGoesInPart,      ///< a gathered op's message goes when those before it have come in part
  kMessageSkipsStep,       ///< the same when one before it has not come, but the next one has
  kNumbersAnewAfterMove,   ///< a link that takes another path counts its packets from 1 again
  kSealedUnderOldNumber,   ///< a packet that is sent again has the number that it had
  kTagNotChecked,          ///< a sealed packet is taken whatever its tag
  kPingInClear,            ///< a packet of one type is not sealed
  kAnswersFromOnePort,     ///< whoever is asked again keeps the source port of its answers
  kKeepsSourcePort,        ///< a link of the ring stays with its port though another one answers
  kCallsNotCompared,       ///< ops of no elements end alike, whatever others called
  kTokenNotChecked,        ///< a packet is its group's by the tag alone, which two groups may share
  kLateRankKeepsWindow,    ///< what is pulled from a rank that has not entered an op stays pulled
  kTilesStartInAnyOrder,   ///< tiles of an op start though an older one waits for a place
  kFoldingHostNotTold,     ///< an owner without members is not told of ops by tiles
  kTilePostNotTold,        ///< who was asked before it had entered does not say that it has
  kResultFreedEarly,       ///< an owner's op ends when the first rank has its results
  kResultPlaceFreedEarly,  ///< an encoded result is forgotten when the first rank has it
  kTileDoneToldOnce,       ///< an owner says once what is done, and if that is lost, never again
  kTileNotEnteredAgain,    ///< a late "not entered" is believed of an op that has entered
  kTileLatePart,           ///< a part is made though its tile is folded: from the output
  kResidualAddedTwice,     ///< by a part that is made twice, since the first took its own back
  kTileFoldedInOwnOrder,   ///< an all-reduce by tiles is folded from the owner on
  // Of the command lane (test/sim/command_sim.cc).
  kEndsAllAtOnce,       ///< all of a group's unfinished calls are answered in the round of its end
  kReadsEveryClient,    ///< each client has its turn in each round, however many there are
  kChunksOfOtherShape,  ///< a call's chunks are counted as the ring would cut it
  kLooksAtAllMemories,  ///< whoever frees memory has all clients' memories looked at
  kOutputNotHeld,       ///< an op's output may be given back while a lane writes to it
  kOneLaneIsEnough,     ///< an op is done when the first lane is through with it
  kFloorUsedUp,  ///< chunks of direct ops count as ahead of their op until they are acknowledged
};

#ifdef GRADWIRE_PLANTED_BUGS
extern PlantedBug planted_bug;
[[nodiscard]] inline bool planted(PlantedBug bug) noexcept { return planted_bug == bug; }
#else
[[nodiscard]] constexpr bool planted(PlantedBug) noexcept { return false; }
#endif

}  // namespace gradwire
