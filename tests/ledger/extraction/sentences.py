"""Sentences that show a signal, and sentences like them that show it not, in English and Chinese; one a line."""

from __future__ import annotations

SHOWN = {
    "correction": """
That's wrong, use ruff instead.
No, I meant the other file.
That is not correct: the office is in Oslo.
You're wrong, it was founded in 1999.
You misunderstood me.
You got my name wrong.
Actually, it's on Tuesday.
No, it's Ada with one d.
It's Tuesday, not Monday.
I already told you I'm vegan.
Stop calling me sir.
Please use tabs instead of spaces.
Correction: the deadline is Friday.
Let me correct that, the meeting is at four.
I never said that.
You should have asked first.
This isn't what I asked for, can you try it with pandas?
Scratch that, the budget is 500.
no that's wrong can you fix it?
There is a mistake in your summary.
Your answer is outdated.
I misspoke, my flight is at six.
不对，应该是三点。
不對，應該是週二。
你理解错了。
你弄錯了，我住在臺北。
你又把我的名字写错了
我说的不是这个意思
不是周一，是周二。
我没有让你删掉它。
改成英文。
这个答案不对。
重新写一遍
别再叫我先生了。
我刚才说错了，是四月。
我已经告诉过你我吃素。
錯了，是第二章。
这里写错了，请更正一下。
你算錯了，總數是十二。
不對，用繁體。你能改一下嗎？
""",
    "reinforcement": """
Yes exactly, keep doing that.
That's exactly what I wanted.
Perfect, just what I needed.
You're absolutely right about the index.
I love how you explained that.
Keep it up!
Please keep answering like this, it suits me.
Exactly, that's the format I like.
This works perfectly.
More like this please.
Great explanation!
That's much better.
You nailed it.
I really like this style.
Spot on.
That's right, I live in Oslo.
Answer like this from now on.
Continue with this tone.
I appreciate that you checked the sources.
Your summary helped me a lot.
Keep using tables like that, ok?
对，就是这样，以后都这样写。
完全正确
正是我想要的。
你说得对，我会试试。
你總結得很好
继续保持
以后都这样回答。
我很喜欢你的回答。
這樣就對了
这样好多了。
你真的帮了我大忙
写得很好，谢谢
就是这个意思
我喜歡這種風格
保持这样。
這個建議很實用
不错，继续
你解释得非常清楚
今後也這樣寫
""",
    "preference": """
I prefer tabs over spaces.
I'd rather have tea.
I really like jazz.
I hate small talk.
I don't like mushrooms.
My favourite editor is Helix.
Always answer in French.
Never use emojis.
From now on, use metric units.
Call me Bo, ok?
Please don't use bullet points.
No emojis please.
Keep your answers short.
I usually drink coffee without sugar.
I'm a big fan of Rust.
I'm not fond of meetings.
I can't stand long introductions.
Answer in German please.
Use British spelling from now on.
I love hiking, but not in the rain.
I never eat meat.
I only use open source tools.
我喜欢喝茶。
我不喜歡吃辣
我更喜欢简洁的代码。
请用中文回答。
以后回答简短一点
别用表情符号
不要用表格。
叫我小明。
以後都用繁體中文回覆
我討厭開會
我最爱吃火锅。
我从不喝酒
比起咖啡，我更爱喝茶
我习惯早起。
我一般都喝美式，我愛喝咖啡
尽量用要点说明
我宁愿走路。
我对历史很感兴趣，我喜爱读史书
""",
    "identity": """
My name is Ada.
I'm a nurse from Bergen.
I work at a bakery.
I live in Oslo.
I'm 34 years old.
I grew up in Texas.
I have two kids.
My wife's name is Eve.
I'm vegetarian.
I'm originally from Poland.
Please call me Bo.
I teach maths at a high school.
I run a small company.
As a doctor, I see this daily.
I moved to Berlin last year.
I'm studying medicine in Graz.
My native language is Finnish.
I was born in 1990.
I'm allergic to nuts.
My pronouns are they/them.
I've worked as a carpenter for ten years.
My son is a pilot.
我叫李雷。
我叫陳小美
我是一名护士
我是北京人。
我住在上海。
我今年三十岁
我來自臺灣
我在一家医院工作。
我有两个孩子
我的母语是中文
我姓王。
我老婆叫小芳
我對花生過敏
我是學生
我在广州长大
作为一名老师，我每天都很忙
我已经退休了
我大学主修物理
""",
    "goal": """
My goal is to run a marathon.
I want to learn Rust this year.
I'm trying to lose weight.
I hope to become a pilot.
I'm saving up for a house.
I'm training for a triathlon.
I plan to move to Spain.
We want to launch in May.
I'm learning to cook.
I've always dreamed of writing a novel.
My dream is to open a café.
I'd love to see the northern lights one day.
I'm determined to quit smoking.
Our target for this quarter is 200 users.
I'm preparing for the bar exam.
I have to finish my thesis by June.
I want to get fit.
I'm working on my thesis.
I intend to pass the exam.
I'm hoping to get promoted.
I aim to read 50 books.
我的目标是跑完马拉松。
我想学日语
我想成為一名作家
我打算明年考研。
我正在减肥
我希望能考上大学
我計劃今年存夠十萬
我在准备考试
我的夢想是環遊世界
我们的目标是年底前上线
我想转行做设计
今年的目标是读五十本书
我立志当医生
为了考上研究生，每天都学习
我想戒烟
我一直在努力练习钢琴
我最近在学习烹饪
我想減肥，有什麼建議嗎？
我一定要考过雅思
""",
    "decision": """
I've decided to take the job.
We decided on Postgres.
Let's go with option B.
Let's use SQLite.
I'll go with the blue one.
We're switching to uv.
I chose the night train.
My decision is final.
Postgres it is.
We settled on Tuesday.
I've made up my mind.
OK, go with plan A.
We agreed to drop Python 3.10.
I accepted the offer.
We won't use Kubernetes.
It's decided, we leave on Friday.
I'm going with the cheaper plan.
Final decision: we ship on Monday.
We'll stick with trunk-based development.
After comparing both, I'm choosing the small one.
The team has decided to rewrite it.
我决定了，去上海。
我们决定用Postgres
那就用方案二吧。
就这么定了
我選擇了第二個方案
最后决定不去了
我们选用FastAPI
最終方案是紅色
还是用蓝色的吧
我接受了那份工作。
说定了
我們決定下週搬家
就按第一版方案
我们不再用微服务了
经过考虑，我还是选了北京
我拒绝了他们的邀请
那就選週五吧
我決定辭職
我最终选了红色
""",
}

NOT_SHOWN = {
    "correction": """
Is it wrong to skip the tests?
Is that wrong?
My teacher said that's wrong.
He wrote "that's wrong, use ruff instead".
If that's wrong, tell me.
No, that's fine.
No, thanks, that's all for today.
I meant to call you yesterday.
It is wrong to steal.
What's wrong with my code?
> That's wrong.
She told me I'm wrong, and you misunderstood me.
You're not wrong.
I cook with oil instead of butter.
I'll try again tomorrow.
I was wrong about the weather.
Nothing is wrong.
I want to stop smoking.
Actually, I like it.
That's not a problem.
Do you think you misunderstood me?
I'm afraid it's wrong.
`that's wrong` is what the linter prints.
对不对？
这样做对不对
对不起，来晚了
他说不对。
老師說我錯了
不对吗？
他对我不好
你没说错
今天心情不对劲
我怕你误会
“不对，应该是三点”是他的原话
如果不对，请告诉我。
是不是我弄错了？
他把头发换成了红色
我不是不想去，只是没时间
不錯，謝謝
應該用哪個？
""",
    "reinforcement": """
ok
yes
Thanks!
Perfect, thank you
Is that exactly right?
Did I get that right?
My boss said keep it up.
I don't know exactly what I want.
That's not exactly what I wanted.
Keep the change in a jar.
I keep doing it wrong.
I'm right-handed.
You're right, aren't you?
The shop is right next to the station.
What works perfectly on Linux?
"Great explanation!" she wrote.
I don't like how you answered.
Nobody is perfect.
That's better, right?
I want a perfect score.
It was not helpful.
If this works perfectly, I'll tell you.
She always says that's exactly right.
好的，谢谢
对
对不起
对方没有回复
这样对吗？
他說得很好
事情就是这样发生的
你说得对吗？
我不喜欢你的回答
继续说
你说的对象是谁
你说得不好
保持联系
正确答案是什么？
天气很好
老师说完全正确
她寫得很好
""",
    "preference": """
Do you prefer tea or coffee?
What do you like?
My mother prefers tea.
I'd like to book a table.
I'd prefer not to say.
It looks like rain.
It feels like home.
If I prefer tea, what should I buy?
She said "I love jazz".
Call me a taxi.
Call me back later.
Would you rather fly?
I like that idea.
Which editor is your favourite?
Speak with your doctor.
Never mind.
I'm in a meeting.
You never answer my questions.
Make a list of the files.
He hates mushrooms.
The docs say always use metric units.
What if I like both?
From now until Friday I am away.
你喜欢喝茶吗？
他喜欢喝茶
我想喝水
大家都喜欢什么？
叫我起床
以后再说
以后我想当医生
妈妈不喜欢吃辣
别担心
不要紧
请问怎么用？
如果我喜欢喝茶，买哪种好？
他說「我喜歡茶」
每次都下雨
我明白你的意思
朋友说我最爱吃火锅
我不吃了，饱了
""",
    "identity": """
What is your name?
Who am I?
His name is Bob.
She is a nurse.
I'm a bit tired.
I'm a huge fan of this band.
I'm working on it.
I work on my bike at weekends.
Where do you live?
I'm from now on offline.
As a rule, I skip lunch.
As a child, I was shy.
If I'm a nurse, what do I need?
"I'm a doctor," said the man.
My friend lives in Oslo.
I'm an hour late.
My name was misspelled?
Am I a good person?
He said I'm a nurse.
I'm in a hurry.
I called my mother.
I study for the exam.
I'm going home.
I wish I'm a doctor one day.
你叫什么名字？
他叫李雷
她是一名护士
我是不是学生？
我是说明天
我叫了外卖
他住在上海
我住院了
我是第一个到的人
我是一个人去的
他说他是北京人
我在考虑换工作
我是因为下雨才来的
我有一个问题
我是真的不知道
“我是医生”，电影里说
""",
    "goal": """
What is your goal?
I want to know the time.
I just want to say hi.
I don't want to learn Rust.
Do you want to learn Rust?
He wants to become a pilot.
The goal was scored by Messi.
I'm looking for my keys.
I'm going to bed.
I had a dream last night.
She said her dream is to open a café.
How do I lose weight?
If I want to learn Rust, where do I start?
I'm trying to open this file.
I want to see the menu.
Is it my goal?
"I want to become a pilot," he sang.
What are your plans for May?
I hope you are well.
I plan for rain.
We need to talk.
I used to train dogs.
你的目标是什么？
我想知道时间
我想问一下
我想喝水
他想成为作家
我不想学日语
他的梦想是环游世界
我在学校
我昨晚做了个梦
你想学日语吗？
如果我想学日语，该怎么办？
我想起来了
我准备睡觉了
妈妈希望我考上大学
目标在哪里？
我在学生会
我想当然了
“我想成为作家”是书名
""",
    "decision": """
I haven't decided yet.
What did you decide?
Should we use Postgres?
Help me decide.
I can't decide.
He decided to leave.
Let's go for a walk.
Let's see.
I'll use the bathroom.
I'm going with my sister to Rome.
If we decided on Postgres, what would change?
"We decided on Tuesday," she wrote.
The decision is hard.
I picked up the kids.
I don't know what it is.
Yes it is.
Have you made up your mind?
My manager said we decided to wait.
Let's talk about options.
It's a big decision.
I agreed with him.
When will you choose?
Let's go for it.
我还没决定
你决定了吗？
帮我决定
他决定去上海
我决定不了
决定权在你
我不知道该选哪个
要不要用方案二？
我们怎么决定？
我有选择困难症
他就要走了
就用了一天
我無法決定
老板决定了
如果我决定去，要带什么？
我選擇題做錯了
「就這麼定了」是口頭禪
""",
}


def lines(block: str) -> list[str]:
    """Return the sentences of a block."""
    return [line for line in block.splitlines() if line]
