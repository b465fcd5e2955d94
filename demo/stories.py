# SPDX-License-Identifier: Apache-2.0
"""A small story grammar: the only text that the demo model is trained on.

    python3 demo/stories.py 10 [SEED]       print ten stories and some statistics

How the grammar is written
  [a|b|c]   one of the alternatives, the first the likeliest (so that greedy decoding has a
            clear winner at each choice); may be nested; an empty alternative is allowed
  {slot}    a word of this story: the hero is {N} ({he} {him} {his}), the friend is {F}
            ({fhe} {fhim} {fhis}); see cast()
  a line    is one or more sentences; before it, "*": for the longer stories, "+": for some of
            them, "-": for the short ones; "/" alone: a new paragraph
Everything is told in the past tense.  The hero and the friend are never both he or both she,
so each pronoun has one meaning.  Stories that open with "Once upon a time" are kept under
SHORT_LIMIT tokens, so that 120 new tokens reach the end; the others may be twice as long.
"""
import random
import re
import sys

SHORT_LIMIT = 118

GIRLS = """Lily Mira Anna Clara Hazel Rosa Nora Ella Ivy Maya Daisy Ruby Tessa Willow Emma Luna
Poppy Ada Olive Wren Lucy Freya June Nina Alma Greta Iris Maple Fern Sofia Zoe Pearl Ingrid
Bella Juniper Leila Marta Flora Penny Yara Sana Kiri""".split()
BOYS = """Tom Finn Oliver Max Leo Sam Jasper Hugo Ben Milo Otto Theo Felix Bram Oscar Jack Rowan
Toby Emil Noah Arlo Pip Henry Simon Gus Ravi Nico Ezra Kai Basil Edgar Moss Rufus Ned Bruno
Samir Anton Barnaby Walter Idris Juno Tariq""".split()
GIRLS_ONLY = "girl,princess,shepherd girl,miller's daughter".split(",")
BOYS_ONLY = "boy,prince,shepherd boy,miller's son".split(",")
BEASTS = """fox,rabbit,bear,mouse,hedgehog,otter,squirrel,badger,dragon,duck,cat,frog,mole,
goat,raccoon,beaver,donkey,turtle""".replace("\n", "").split(",")
TRADES = "baker,gardener,tailor,painter,fiddler,toymaker,beekeeper,woodcutter,traveler".split(",")
HERO_ADJ = "little,young,small,curious,gentle,cheerful,clever,shy,brave,quiet,kind".split(",")
FRIEND_ADJ = "old,friendly,wise,kind,little,shy,cheerful,gentle,tall,small".split(",")

PLACES = {  # where the hero lives: the spots around it (all work after by, near, to and past)
    "in a small village by the sea": "the old harbor,the lighthouse,the sandy beach,the rocky cove",
    "in a cottage at the edge of the forest":
        "the old oak tree,the little stream,the mossy stones,the berry bushes",
    "in a green valley between two mountains":
        "the waterfall,the stone bridge,the flower meadow,the apple orchard",
    "in a busy little town": "the market square,the clock tower,the town gate,the old well",
    "on a farm at the end of a long road":
        "the red barn,the duck pond,the hay field,the wooden fence",
    "in an old mill beside a slow river":
        "the water wheel,the tall reeds,the wooden bridge,the willow tree",
    "in a quiet village high in the mountains":
        "the deep lake,the tall pine trees,the goat path,the bell tower",
    "in a crooked house on a windy hill":
        "the garden gate,the old windmill,the stone wall,the hollow tree",
    "in a tall house beside a blue lake":
        "the wooden pier,the round hill,the reed beds,the boat house",
    "in a castle with seven towers": "the rose garden,the castle gate,the stables,the apple trees",
}
COLORS = "[red|blue|green|yellow|purple|white]"
CLOTH = [(COLORS, "scarf"), (COLORS, "kite"), (COLORS, "hat")]  # (what it is like, what it is)
WOOD = [("[wooden|silver|bamboo]", "flute"), ("[painted|little|wooden]", "drum"),
        ("[little|painted|wooden]", "music box"), ("[wooden|little|painted]", "boat")]
METAL = [("[old|brass|shiny]", "compass"), ("[old|brass|round]", "lantern"),
         ("[little|brass|golden]", "key"), ("[silver|brass|tiny]", "bell"),
         ("[golden|shiny|round]", "button"), ("[blue|green|shiny]", "marble")]
OBJECTS = {"gift": CLOTH + WOOD, "truth": WOOD + METAL[:2]}  # things one can make; can break
FOODS = """loaf of bread,apple pie,pot of soup,honey cake,basket of berries,plum tart,
basket of pears,bag of nuts,cherry pie,pan of pancakes""".replace("\n", "").split(",")
SKILLS = [  # to do what | how it went at first | how it went in the end
    ("play the flute", "only a squeak came out", "a sweet tune drifted over the rooftops"),
    ("swim", "{he} only splashed and swallowed water", "{he} swam all the way across the pond"),
    ("bake bread", "the bread came out as hard as a stone",
     "the bread came out golden and soft"),
    ("paint", "the colors ran together into a brown puddle",
     "{he} painted a sunrise that looked almost real"),
    ("dance", "{he} tripped over {his} own feet", "{he} danced without missing a single step"),
    ("knit", "the wool ended up in one big knot", "{he} held up a warm and tidy scarf"),
    ("skate", "{he} slipped and landed on {his} back", "{he} glided over the ice like a swan"),
    ("read", "the letters seemed to jump around on the page",
     "{he} read a whole story out loud"),
    ("fly a kite", "the kite fell straight into the mud", "the kite rose high above the clouds"),
    ("juggle", "the balls rolled away in every direction", "five balls danced in the air at once"),
]
TROUBLES = [  # what had happened to the friend | what the hero did
    ("had fallen into a deep hole",
     "{He} found a long rope, tied it to a tree, and pulled {F} out of the hole."),
    ("was stuck in the thick mud",
     "{He} laid a flat board over the mud and pulled {F} out, one leg at a time."),
    ("was caught in a thorn bush",
     "{He} bent the thorns back one by one until {F} was free."),
    ("was tangled in an old net",
     "{He} untied the knots one by one until {F} was free."),
    ("was trapped under a fallen branch",
     "{He} found a strong pole, lifted the branch, and set {F} free."),
]
SEEDS = [("sunflower", "a tall yellow flower"), ("pumpkin", "a round orange pumpkin"),
         ("bean", "a vine full of green beans"), ("apple", "a strong little apple tree"),
         ("strawberry", "a plant full of sweet strawberries"), ("rose", "a bush of red roses")]
NOISES = [  # the noise | what it really was
    ("a low rumble", "It was only {friend} named {F}, who was snoring under a blanket."),
    ("a sad, thin sound", "It was only {friend} named {F}, who was learning to play the violin."),
    ("a strange tapping", "It was only {friend} named {F}, who was building a birdhouse in the moonlight."),
    ("a loud sneeze", "It was only {friend} named {F}, who had caught a cold."),
    ("a soft scratching", "It was only {friend} named {F}, who was looking for {fhis} lost glasses."),
]
VIEWS = ["the wide, blue sea", "a city full of lights", "a valley filled with flowers",
         "a forest that had no end", "a row of snowy mountains", "a lake as clear as glass"]
GAMES = ["hide and seek", "a game of catch", "a game of marbles", "pirates", "a guessing game"]

ONCE = """Once upon a time, {home}, there lived {hero} named {N}.
Once upon a time, there was {hero} named {N} who lived {home}.
Once upon a time, there lived {hero} named {N} {home}.
Once upon a time, {hero} named {N} lived {home}.
Once upon a time there was {hero} named {N}, who lived {home}.""".split("\n")
OTHERWISE = """{home}, there lived {hero} named {N}.
long ago, {home}, there lived {hero} named {N}.
there once was {hero} named {N} who lived {home}.
{N} was {hero} who lived {home}.
a long time ago, {hero} named {N} lived {home}.
{hero} named {N} lived {home}.
not so long ago, there was {hero} named {N} who lived {home}.""".split("\n")
LIKES = """Everyone who knew {him} said that {he} had a kind heart.
{N} liked the smell of rain, the taste of honey, and the songs of the birds.
{His} house was small, but it was warm and full of light.
{He} got up early every day, because the mornings were so beautiful there.
{N} always had a smile for everyone {he} met.
In the evenings, {he} liked to sit outside and watch the sky change color.""".split("\n")

PLOTS = {}
PLOTS["lost"] = """
[{His} greatest treasure|What {he} loved most in the world] was a {obj} [that {his} grandmother had given {him}|from {his} grandfather].
[One day, the {o} was gone|One windy morning, {he} could not find the {o}|One foggy day, the {o} was missing].
/
*{N} looked [under the bed|behind the door|in every corner] and near {spot}, but [it was not there|{he} did not find it|there was no sign of it].
+{He} [asked everyone {he} met|looked in all the same places again], but nobody had seen a {obj}.
*Then {he} met {friend} named {F}.
-While {he} was looking for it, {he} met {friend} named {F}.
["Why are you so sad?"|"What is the matter?"|"Why are you crying?"] asked {F}.
"I [have lost|can't find|lost] my {o}," said {N}[| with a sigh| in a small voice].
"[Then let us look together|Don't worry, I will help you|Four eyes see more than two]," said {F}.
+So they went from {spot} to {spot2}, looking behind every stone.
/
[At last|Just before sunset|After a long search], {F} [found it|saw it|spotted it] [in the grass|under some leaves|behind a big stone] near {spot2}.
*[{N} jumped for joy and thanked {F} again and again|{N} was so happy that {he} hugged {F}|{N} laughed with joy and held the {o} tight].
{friends}"""
PLOTS["help"] = """
[One day|One morning|One afternoon], {he} [heard|suddenly heard] a [small|sad|weak] voice near {spot}.
*"[Help! Please help me|Is anybody there? Please help me|Oh, please help me]!" it cried.
/
It was {friend} named {F}, who {trouble}.
*{N} was [a little afraid|not very big|not very strong], but {he} [wanted to help|did not run away|knew what to do].
{rescue}
+They sat down in the grass to rest, and {N} shared {his} lunch.
"Thank you! [I will never forget this!|How can I ever repay you?|You are very brave!]" said {F}.
/
[A few days later|The next week|Not long after that], {N} [got lost in the fog|lost {his} way in the dark woods|could not find the way home].
*{He} [called out|shouted] as loudly as {he} could, and [who came|who should come] with a lantern? It was {F}!
*"You helped me, and now I will help you," said {F}.
*[Together they walked safely home|Side by side they found the way home].
-But {F} [heard {him} calling|came with a lantern], and [together they walked safely home|side by side they found the way].
[{friends}|{N} learned that a kind deed always comes back.|"A kind deed always comes back," thought {N} with a smile.]"""
PLOTS["learn"] = """
More than anything, {he} wanted to [learn how|learn] to {skill}.
[But the first time {he} tried|But on the first day|But when {he} tried it for the first time], {fail}.
+[The second time was no better|The next day it was even worse], and some of the others laughed.
/
["I will never learn it|"It is too hard for me|"I give up]," said {N}[|, and {he} sat down sadly by {spot}].
*{Friend} named {F} heard {him} and [came closer|sat down beside {him}].
*"[Nobody is good at something new|Every master was once a beginner|It was hard for me too]," said {F}. "[Try a little every day|Be patient and try again|Let us practice together], [and you will see|and one day you will do it]."
-"[Try a little every day|Every master was once a beginner|Be patient and try again]," said {friend} named {F}.
/
So {N} practiced [every morning|every day after breakfast|every evening], [and each day it went a little better|and slowly it became easier|and {he} did not give up].
+[There were days when nothing went right|On some days {he} was very tired], but {F} often came to watch and cheered {him} on.
[One day|At last|After many weeks], {win}.
[Everybody clapped, and {F} clapped the loudest|"You did it!" cried {F}|{F} was so proud that {fhe} clapped {fhis} hands].
[{N} had learned that patience is the best teacher.|And {N} was never afraid to try something new again.|From then on, {N} told everyone never to give up.]"""
PLOTS["storm"] = """
{His} best friend was {friend} named {F}.
One [night|evening|autumn night], [a great storm came|a terrible storm blew over the land|dark clouds filled the sky], and the wind [howled|roared] [all night long|until morning].
/
*[In the morning|When the sun came up|The next day], {N} ran to see {F}, who lived near {spot}.
The storm had [blown away {F}'s roof|knocked down {F}'s chimney|broken all of {F}'s windows], and {fhe} was [shivering with cold|very sad|wet and cold].
*"[I have no warm place to sleep,|What shall I do now?|My poor house is broken,]" said {F}.
"[You can stay with me|Come and live with me for a while|My house is big enough for two]," said {N}[|, and {he} made {fhim} a cup of hot tea|, and {he} gave {fhim} a bowl of hot soup].
/
*[The next day|On the following day|As soon as the rain stopped], they [took hammers and nails|gathered wood and straw|went to work together].
+Soon all the neighbors came to help, and everyone sang while they worked.
*[After three days|Before the week was over|By the end of the week], the house was [as good as new|stronger than before|dry and warm again].
-[Together they mended the house|They mended the house together], and [soon|after three days|before long] it was [as good as new|stronger than before|dry and warm again].
"[A storm can break a house|The wind can break a house]," said {F}, "but [it cannot break a friendship|it can never break a friendship]."
+That evening they sat by the fire, drank hot tea, and listened to the gentle rain.
*{friends}"""
PLOTS["journey"] = """
[Every evening|Every day], {he} looked at the [far hills|distant hills] and wondered what was behind them.
*"[One day I will go and see|I want to see the world|Tomorrow I will find out]," [{he} said|said {N}].
/
So [one spring morning|one fine morning|early one morning], {he} packed [some bread and cheese|a blanket and some apples|a bottle of water] and [set off|started down the road].
+{He} crossed a [wide river|dark forest|rocky field], and at night {he} slept under the stars.
On the way, {he} met {friend} named {F}[|, who was going the same way].
"[May I come with you|Shall we walk together|Do you want some company]?" asked {F}.
*"[Yes, please|Of course]," said {N}. "[The road is shorter with a friend|It is more fun with two]."
+They sang songs, told stories, and shared everything they had.
/
[On the third day|After a long climb|When they reached the top of the last hill], they saw {view}.
"[How beautiful|It is even better than my dreams|I have never seen anything like it]!" [whispered|said|cried] {N}.
*They [stayed there until the stars came out|sat and looked for a long time|stayed for a whole week].
-Then they [went|walked] home again.
*Then {he} [began to miss|thought of] {his} own little bed, and [they walked home together|{he} took {F} home with {him}].
[The world was wide and wonderful, but home was the best place of all.|{N} had seen the wide world, and {he} had found a friend as well.|{friends}]"""
PLOTS["gift"] = """
{His} best friend was {friend} named {F}.
*[Tomorrow would be|The next day was] {F}'s birthday, but {N} [had no money for a gift|did not have a single coin].
-[It was {F}'s birthday|{F}'s birthday came], but {N} [had no money for a gift|did not have a single coin].
/
*{He} sat by {spot} and thought [for a long time|hard|and thought].
*"[I know|I have an idea]! [I will make something myself|I can make a gift with my own hands]," {he} said.
*{He} [gathered everything {he} needed|looked for all the things {he} needed] and worked [all night|until the moon was high|until late in the evening].
+Twice {he} [made a mistake and had to start again|thought of giving up], but {he} kept going.
*[By morning|When the sun came up|At last], {he} had made a {obj}.
-So {he} worked [all day long|for many hours|without a break], and [in the end|at last] {he} had made a {obj} with {his} own hands.
/
"[Happy birthday|This is for you|I made this for you]!" said {N}[|, and {he} held out the {o}|, and {he} gave {fhim} the {o}].
+{F} looked at it for a long time and said nothing at all.
*{N} was [worried|a little nervous], but then {F} [smiled|began to smile] [from ear to ear|with shining eyes|brightly].
"[It is the best gift I have ever had|This is the nicest thing I own|I will keep it forever]," said {F}, "because [you made it yourself|you made it just for me]."
+They ate cake, played {game}, and danced until it was dark.
[{N} understood that the best gifts come from the heart.|That night, {N} fell asleep with a happy heart.|{friends}]"""
PLOTS["share"] = """
[One day|One cold day|One winter day], there was a big {food} on {his} table, and it [smelled|looked] [wonderful|delicious].
*"[I will eat it all by myself|This is all for me|I will not share it with anyone]," said {N}.
-{N} [wanted|was going] to eat it all alone.
/
*[Just then|At that moment], there was a knock at the door.
*[Outside|In front of the door] stood {friend} named {F}, [cold and hungry|tired and hungry|who looked very thin].
-[But then|Just then], {friend} named {F} knocked at the door, [cold and hungry|tired and hungry].
*"[I have not eaten since yesterday|I have walked a long way|I am so hungry]," said {F}[| softly| in a low voice]. "[Could you spare a little food|Do you have something to eat]?"
+{N} looked at the food, and then {he} looked at the cold, gray sky.
*{N} thought about it, and [{his} heart grew soft|{he} felt sorry for {F}|{he} remembered that {he} had been hungry too].
"[Come in and sit by the fire|Please come in and eat with me|There is enough for both of us]," [{he} said|said {N}].
/
[They ate and laughed together|They shared the meal and told stories|They ate together until nothing was left], and it [tasted better than anything {he} had ever eaten alone|was the best meal {he} had ever had].
+When the plates were empty, {F} washed them and sang a song about the sea.
*[In the spring|Many weeks later|The next summer], {F} came back with [a basket full of honey|a cart full of apples|a big bag of flour]. "[Now it is my turn to share|This is for you]," {fhe} said.
[{N} learned that food tastes best when it is shared.|{friends}|And after that, there was always an extra chair at {his} table.]"""
PLOTS["seed"] = """
[One spring day|One spring morning|One day in spring], {he} found a [tiny|small] {seed} seed [and planted it|and put it in the ground|and planted it near {spot}].
[Every morning|Every day], {he} gave it water and waited[|, but nothing happened].
/
*A week went by, but [there was nothing to see|not even a leaf came up].
"[This seed must be bad|It will never grow|I have waited long enough]," said {N}[| crossly| with a sigh].
*{His} neighbor, {friend} named {F}, [smiled|shook {fhis} head|leaned over the fence].
*"[Good things need time|A seed cannot hurry|It is working under the ground]," said {F}. "[Give it water and be patient|Wait a little longer]."
-"[Good things need time|A seed cannot hurry|It is working under the ground]," said {his} neighbor, {friend} named {F}.
+So {N} sang to the seed, pulled out the weeds, and kept the birds away.
*So {he} [waited|kept on waiting], [through sun and rain|day after day|and {he} did not forget the water].
/
Then, [one morning|one sunny morning], a [small green leaf|tiny green shoot] [came out of the ground|pushed up through the soil].
+"It is growing! It is growing!" shouted {N}, and {he} danced around the garden.
*[By the summer|Before long|In time], it became {plant}, [the finest for miles around|and everyone came to see it].
-[By the summer|Before long|In time], it became {plant}.
*{N} [proudly showed it to|thanked] {F}, and {fhe} [laughed|smiled].
["You were right," said {N}. "Good things need time."|{N} had learned to wait, and the waiting made it even better.|The next spring, they planted a whole garden together.]"""
PLOTS["truth"] = """
*[One day|One rainy day|One afternoon], {he} was playing at the house of {friend} named {F}.
*{F} had a {obj}, and it was [very precious to {fhim}|{fhis} favorite thing|very old].
-{His} friend, {friend} named {F}, had a {obj}.
/
*"[Please be careful with it|You may look, but please be careful]," said {F}.
*But {N} [was not careful|wanted to hold it|ran too fast], and [the {o} fell to the floor and broke|with a loud crack, the {o} broke].
-[One day|One rainy day|One afternoon], {N} [was not careful|ran too fast], and the {o} [broke|fell and broke].
*{F} was in the [kitchen|garden] and [had not seen it|did not see it].
+{N} looked at the door, and for a moment {he} wanted to run away.
"[I could hide it|Nobody has to know|I could say that the cat did it]," thought {N}, but {his} heart felt heavy.
/
So {he} [went to {F}|took a deep breath] and said, "[I broke your {o}. I am very sorry|I am so sorry. I broke your {o}]."
*{F} was [sad for a moment|quiet for a while], but then {fhe} [smiled|nodded].
-"[Thank you for telling me the truth|It takes courage to tell the truth]," said {F}, and they mended it together.
*"[Thank you for telling me the truth|It takes courage to tell the truth]," {fhe} said. "[Let us mend it together|Come, we will fix it together]."
+They worked all afternoon with glue and string, and they even had some fun.
*[Soon the {o} was almost as good as new|By evening the {o} was whole again], [and {N} felt light and happy|and so was their friendship].
[{N} never forgot that the truth is always the best way.|{friends}|After that, {N} always told the truth, even when it was hard.]"""
PLOTS["new"] = """
[One day|One summer day|One Monday], {friend} named {F} moved in near {spot}.
*{F} [was too shy to speak|did not know anybody|had come from far away and knew nobody].
/
[Every day|From the window], {N} saw {F} [playing all alone|sitting alone|looking at the others from far away].
*"[It must be hard to be new|I would not like to be alone|Everyone needs a friend]," thought {N}.
So {he} [walked over|went to {fhim}] and said, "[Hello|Good morning]! [Would you like to play {game}|Do you want to play {game} with me]?"
*{F} [looked up in surprise|looked at {his} friendly face], and then {fhe} [smiled|nodded] for the first time.
+"Nobody has ever asked me before," {fhe} said quietly.
/
They played [until the sun went down|all afternoon|until it was time for supper][|, and {F} laughed out loud].
+{F} turned out to know the funniest jokes in the whole land.
[The next morning|The next day], {F} was [already waiting|waiting at the door] with [two apples|two cookies|a big smile]. "[Shall we play again?|What shall we do today?|I am so glad that you are here,]" {fhe} said.
[It takes only one kind word to make a friend.|{friends}|{N} was glad that {he} had said hello.]"""
PLOTS["noise"] = """
[One dark night|One cold night|One windy night], {he} [was lying in bed when {he} heard|woke up and heard] {noise} near {spot}.
"[What was that|Is it a monster|Who is there]?" whispered {N}[|, and {he} pulled the blanket over {his} head|, and {he} began to shake].
/
*The sound came [again|again and again|a second time].
*[{N} could not sleep|There was no one else to ask|It did not stop], so {he} [took a lantern|lit a small candle|put on {his} boots] and [went out|stepped out into the dark].
-But {he} [took a lantern|lit a small candle] and [went out|stepped out into the dark].
*[{His} heart beat like a drum|{His} knees were shaking|Every shadow looked like a giant], but {he} [walked on|took one step and then another|did not turn back].
+A branch cracked under {his} foot, and an owl looked down at {him} with yellow eyes.
/
[There was no monster at all|It was not a monster|There was nothing to fear]! {secret}
*"[I am sorry that I woke you|I hope I did not scare you|Good evening]," said {F}[| kindly].
{N} laughed [with relief|until {his} belly hurt|out loud].[| "I thought you were a monster," {he} said.]
+They drank warm milk together and looked at the stars until they were sleepy.
[After that night, {N} was not afraid of the dark any more.|Things are often less scary when you look at them closely.|{N} went back to bed and slept until morning, brave and happy.]"""
PLOTS["fog"] = """
{His} best friend, {friend} named {F}, [liked to pick berries far from home|often walked to the next town to sell eggs|often went fishing far away].
One [evening|autumn evening], [a thick fog came down|thick fog rolled over the land], and {F} did not come home.
/
*"[{F} will never find the way,|{F} must be lost in the fog,|What if {F} cannot see the path?]" thought {N}.
[So {he}|Then {N} had an idea. {He}] [ran|hurried] to {spot} and [held up a big lantern|rang a bell as loudly as {he} could|beat on a drum with all {his} strength].
+The hours went by, and {his} arms became heavy, but {he} sang to stay awake.
*[It was cold and dark|{He} was tired and wet|The night was long], but {he} [did not stop|did not go home|stayed there].
/
*[At midnight|At last|Long after midnight], a voice called, "[{N}, is that you?|Hello! I am here!]"
*[Out of the fog came {F}|{F} stepped out of the fog], [wet but safe|tired but smiling|safe and sound].
-[At last|At midnight|Long after midnight], {F} [came|stepped] out of the fog, [wet but safe|tired but smiling|safe and sound].
"[You showed me the way|You saved me|Without you I would still be lost]," said {F}[|, and {fhe} hugged {him}].
+They went inside, made a fire, and wrapped themselves in thick blankets.
[{N} was tired, but {he} had never been so happy.|{friends}|Even a small friend can be a great light in the dark.]"""
PLOTS["race"] = """
*[Every summer|Every year], there was a [great|big] race from {spot} to {spot2}, and {N} [wanted to win|dreamed of winning] [the golden cup|the first prize].
-[Every summer|Every year], there was a [great|big] race, and {N} [wanted to win|dreamed of winning] [the golden cup|the first prize].
*[{He} trained for many weeks|{He} practiced every morning|{He} had never won before].
/
*[On the day of the race|When the day came], {N} ran [as fast as the wind|faster than ever] and was [soon in front|ahead of everyone].
*But [halfway there|near the end], {he} saw {friend} named {F} [lying on the path|sitting on the ground].
-[This time {he} was in front|{He} ran as fast as the wind], but then {he} saw {friend} named {F} [lying on the path|sitting on the ground].
"[I hurt my foot|I fell and hurt my knee]," said {F}.
*"[Run on, or you will lose|Don't stop for me]!"
+{N} looked at the finish, and then {he} looked back at {F}.
"[A friend is worth more than a prize|I will not leave you here|There will be other races]," said {N}, and {he} helped {fhim} up.
/
*[Step by step|Slowly, arm in arm], they walked [on|to the end], and they [came in last of all|crossed the line after all the others].
*But [everyone cheered for them|the crowd cheered louder than ever|all the people stood up and clapped].
-They [came in last of all|came in after all the others], but [everyone cheered for them|the crowd cheered louder than ever].
+The winner came over, shook their hands, and shared the big prize cake with them.
[{N} did not win the prize, but {he} won a friend.|{friends}|That evening, {N} felt like a winner after all.]"""
PLOTS["star"] = """
[One evening|One clear night|One summer night], {he} saw a [bright star|shining star|golden star] in a pool of water near {spot}.
*"[I want to keep it|I will catch it and take it home|It must have fallen from the sky]," said {N}.
/
[{He} tried to catch it with|{He} reached into the water with] [a net|a bucket|both hands], but the star [broke into a hundred pieces|slipped away|danced out of reach].
*{He} tried [again and again|three times|until {he} was wet from head to toe], and each time [it slipped away|it was gone].
+{His} sleeves were dripping, and {his} feet were very cold.
*{Friend} named {F} [came by|saw {him}] and [sat down beside {him}|smiled].
*"[Look up|Lift your eyes]," said {F}. "[The real star is in the sky, and nobody can keep it|It is only a picture of the star above us]."
-"[Look up|Lift your eyes]," said {friend} named {F}. "[The real star is in the sky|It is only a picture of the star above us]."
{N} looked up and saw [a thousand stars|the whole sky full of stars|more stars than {he} could count].
/
*"[Oh|How beautiful]!" {he} [whispered|said]. "[They belong to everyone|Nobody has to catch them]."
*[So they lay down in the grass|So they sat side by side], and {F} [told {him} the names of the stars|showed {him} how to find the great bear|told {him} old stories] [until they fell asleep|until late at night].
+From time to time a star fell, and each of them made a secret wish.
[And every clear night after that, they met there to look at the sky.|{friends}|{N} learned that some things are lovely because we cannot keep them.]"""

FRIENDS = """[From that day on, {N} and {F} were the best of friends.|And {N} and {F} stayed friends \
for the rest of their lives.|From then on, {N} and {F} [did everything together|met every day].]"""


def pick(rng, options):
    """Returns one of the options; early ones are likelier, less so in long lists."""
    shift = 2 if len(options) < 8 else 5
    return rng.choices(options, [1 / (i + shift) for i in range(len(options))])[0]


def expand(rng, text, words):
    """Resolves [a|b] from the inside, then {slot}, until neither is left."""
    while "[" in text or "{" in text:
        if "[" in text:
            text = re.sub(r"\[([^\[\]]*)\]", lambda m: pick(rng, m[1].split("|")), text)
        else:
            text = re.sub(r"\{(\w+)\}", lambda m: words[m[1]], text)
    return text


def new_name(rng):
    """Returns an invented name, so that the model learns to copy any name and not only known ones."""
    syllable = lambda: rng.choice("bdfgklmnprstvz") + rng.choice("aeiou")
    name = "".join(syllable() for _ in range(rng.choice((2, 2, 3))))
    return (name + rng.choice(("", "", "n", "l", "r", "s"))).capitalize()


def cast(rng, plot):
    """Returns the words of one story: its people, places and things."""
    w = {}
    female = rng.random() < 0.5

    def person(female, adjectives, kinds):
        name = new_name(rng) if rng.random() < 0.06 else pick(rng, GIRLS if female else BOYS)
        kind = pick(rng, kinds)
        return name, kind, "a " + pick(rng, adjectives) + " " + kind

    people = (GIRLS_ONLY, BOYS_ONLY) if female else (BOYS_ONLY, GIRLS_ONLY)
    humans = rng.random() < 0.5
    w["N"], w["kind"], w["hero"] = person(female, HERO_ADJ, people[0] if humans else BEASTS)
    while "F" not in w or w["F"] == w["N"] or w["fkind"] == w["kind"]:
        r = rng.random()
        kinds = BEASTS if r < 0.6 else TRADES if r < 0.8 else people[1][:1]
        w["F"], w["fkind"], w["friend"] = person(
            not female, FRIEND_ADJ if r < 0.8 else HERO_ADJ, kinds)
    w["Friend"] = w["friend"].capitalize()
    for prefix, is_female in (("", female), ("f", not female)):
        for slot, she, he in (("he", "she", "he"), ("him", "her", "him"), ("his", "her", "his")):
            w[prefix + slot] = she if is_female else he
            w[(prefix + slot).capitalize()] = w[prefix + slot].capitalize()
    w["home"] = pick(rng, list(PLACES))
    w["spot"], w["spot2"] = rng.sample(PLACES[w["home"]].split(","), 2)
    adjective, w["o"] = pick(rng, OBJECTS.get(plot, CLOTH + METAL + WOOD))
    w["obj"] = adjective + " " + w["o"]
    w["food"], w["game"] = pick(rng, FOODS), pick(rng, GAMES)
    w["view"] = pick(rng, [v for v in VIEWS if not set(v.split()) & set(w["home"].split()) - {"a"}])
    w["skill"], w["fail"], w["win"] = pick(rng, SKILLS)
    w["trouble"], w["rescue"] = pick(rng, TROUBLES)
    w["seed"], w["plant"] = pick(rng, SEEDS)
    w["noise"], w["secret"] = pick(rng, NOISES)
    w["friends"] = FRIENDS
    return {k: expand(rng, v, w) if k != "friends" else v for k, v in w.items()}


def size(text):
    """Returns about the number of tokens: words and runs of punctuation."""
    return len(re.findall(r"\w+|[^\w\s]+", text))


def story(rng):
    """Returns one story, without a final newline."""
    plot = pick(rng, list(PLOTS))
    once = rng.random() < 0.7
    first = pick(rng, ONCE if once else OTHERWISE)
    if not once and rng.random() < 0.5:
        first += " " + pick(rng, LIKES)
    extra = 0.0 if once else 0.7  # the chance of each "+" line
    while True:
        words, lines = cast(rng, plot), [first]
        for line in PLOTS[plot].strip().split("\n"):
            odds = {"+": extra, "*": extra if once else 1, "-": once}.get(line[0], 1)
            if rng.random() < odds:
                lines.append(line.lstrip("+*-"))
        text = expand(rng, " ".join(lines), words).replace(" / ", "\n\n")
        text = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)
        text = text[0].upper() + text[1:]
        if not once or size(text) <= SHORT_LIMIT:
            return text


def stories(seed, count):
    """Returns `count` stories of this seed; every seed gives others."""
    rng = random.Random(f"lockstep-stories {seed}")
    return [story(rng) for _ in range(count)]


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    texts = stories(sys.argv[2] if len(sys.argv) > 2 else "look", count)
    print(("\n\n" + "-" * 60 + "\n\n").join(texts[:20]))
    sizes = sorted(size(t) for t in texts)
    words = {w for t in texts for w in re.findall(r"\w+", t)}
    print(f"\n{count} stories, {len(set(texts))} different; {len(words)} different words; "
          f"tokens about {sizes[0]} to {sizes[-1]}, median {sizes[count // 2]}")


if __name__ == "__main__":
    main()
